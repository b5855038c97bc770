"""Jobs in MXNet: name of a file → its text."""

# ruff: noqa: E501
# The text of a job decides its trace: it is not to be reformatted.

from __future__ import annotations

__all__ = ["FILES"]

FILES: dict[str, str] = {}

_GLUON = """
import mxnet as mx
from mxnet.gluon import nn

def model():
    net = nn.HybridSequential()
    net.add(nn.Dense(512, activation="relu"), nn.Dense(512, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier(), ctx=mx.gpu())
    {hybridize}
    return net

def batch(batch_size):
    return mx.nd.zeros((batch_size, 64), ctx=mx.gpu()), mx.nd.zeros((batch_size,), ctx=mx.gpu())
"""
FILES["gluon_plain.py"] = _GLUON.format(hybridize="pass")
FILES["gluon_hybrid.py"] = _GLUON.format(hybridize="net.hybridize()")
FILES["gluon_static.py"] = _GLUON.format(hybridize="net.hybridize(static_alloc=True, static_shape=True)")
FILES["gluon_cnn.py"] = """
import mxnet as mx
from mxnet.gluon import nn

def model():
    net = nn.HybridSequential()
    for width in (16, 32):
        net.add(nn.Conv2D(width, 3, padding=1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D())
    net.add(nn.Conv2DTranspose(8, 4, strides=2, padding=1), nn.LeakyReLU(0.1), nn.GlobalAvgPool2D(), nn.Dropout(0.3), nn.Dense(10))
    net.initialize(ctx=mx.gpu())
    net.hybridize()
    return net

def batch(batch_size):
    return mx.nd.zeros((batch_size, 3, 48, 48)), mx.nd.zeros((batch_size,))
"""
FILES["gluon_zoo.py"] = """
import mxnet as mx
from mxnet.gluon.model_zoo import vision

def model():
    net = vision.resnet18_v1(classes=10)
    net.initialize(ctx=mx.gpu())
    net.hybridize()
    return net

def batch(batch_size):
    return mx.nd.zeros((batch_size, 3, 64, 64)), mx.nd.zeros((batch_size,))
"""
FILES["gluon_recurrent.py"] = """
import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn, rnn

class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.words = nn.Embedding(2000, 64)
            self.lstm = rnn.LSTM(96, 2, layout="NTC", dropout=0.2, input_size=64)
            self.head = nn.Dense(2000, flatten=False, in_units=96)

    def hybrid_forward(self, F, tokens):
        return self.head(self.lstm(self.words(tokens)))

def model():
    net = Net()
    net.initialize(ctx=mx.gpu())
    net.hybridize()
    return net

def batch(batch_size):
    return mx.nd.zeros((batch_size, 20)), mx.nd.zeros((batch_size, 20))
"""
FILES["gluon_own.py"] = """
import mxnet as mx
from mxnet.gluon import nn

def model():
    net = nn.HybridSequential()
    net.add(nn.Dense(256, activation="tanh"), nn.LayerNorm(), nn.Dense(8))
    net.initialize()
    return net

def batch(batch_size):
    return mx.nd.zeros((batch_size, 100)), mx.nd.zeros((batch_size, 8))

def loss(model, batch):
    x, y = batch
    return mx.gluon.loss.HuberLoss()(model(x), y)

def optimizer(params):
    return mx.gluon.Trainer(params, "ftml", {"learning_rate": 0.1})
"""
FILES["mx_symbol.py"] = """
import mxnet as mx

def model():
    x = mx.sym.Variable("data")
    x = mx.sym.Activation(mx.sym.Convolution(x, num_filter=16, kernel=(5, 5)), act_type="relu")
    x = mx.sym.Pooling(x, pool_type="max", kernel=(2, 2), stride=(2, 2))
    x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=10)
    return mx.sym.SoftmaxOutput(x, mx.sym.Variable("softmax_label"), name="softmax")

def batch(batch_size):
    return {"data": (batch_size, 1, 28, 28), "softmax_label": (batch_size,)}
"""
