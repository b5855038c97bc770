"""Small configurations of transformers' model types, made from the defaults by one set of rules."""

from __future__ import annotations

from typing import Any

__all__ = ["MODEL_TYPES", "small_configuration"]

_DECODERS = """
    afmoe apertus arcee bamba bert-generation biogpt bitnet bloom codegen cohere cohere2 ctrl dbrx deepseek_v2
    deepseek_v3 diffllama doge dots1 ernie4_5 ernie4_5_moe exaone4 falcon falcon_h1 falcon_mamba flex_olmo gemma gemma2
    gemma3_text glm glm4 glm4_moe gpt2 gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gpt_oss gptj granite granitemoe
    granitemoehybrid granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe jamba jetmoe lfm2 llama longcat_flash mamba
    mamba2 minimax ministral mistral mixtral modernbert-decoder mpt nemotron nemotron_h olmo olmo2 olmo3 olmoe
    openai-gpt opt persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next recurrent_gemma rwkv seed_oss
    smollm3 stablelm starcoder2 vaultgemma xglm xlnet xlstm zamba zamba2
"""
_ENCODERS = """
    albert bert big_bird camembert canine convbert data2vec-text deberta deberta-v2 distilbert electra ernie esm
    eurobert flaubert fnet funnel ibert layoutlm longformer luke markuplm megatron-bert mobilebert modernbert mpnet mra
    nomic_bert nystromformer reformer rembert roberta roberta-prelayernorm roc_bert roformer splinter squeezebert tapas
    xlm xlm-roberta xlm-roberta-xl xmod yoso
"""
_ENCODER_DECODERS = """
    bart bigbird_pegasus blenderbot blenderbot-small fsmt led longt5 m2m_100 marian mbart mt5 mvp nllb-moe pegasus
    pegasus_x plbart prophetnet switch_transformers t5 t5gemma umt5
"""
_IMAGES = """
    align altclip aria beit bit blip blip-2 chinese_clip clip clipseg conditional_detr convnext convnextv2 cvt
    data2vec-vision deit depth_anything detr dinat dinov2 dinov2_with_registers dinov3_convnext dinov3_vit donut-swin
    dpt efficientnet flava focalnet gemma3 git glpn groupvit hiera ijepa idefics2 idefics3 imagegpt internvl kosmos-2
    layoutlmv3 levit llava llava_next mask2former maskformer mgp-str mllama mobilenet_v1 mobilenet_v2 mobilevit
    mobilevitv2 paligemma perceiver pixtral poolformer pvt pvt_v2 qwen2_vl qwen2_5_vl qwen3_vl regnet resnet rt_detr
    segformer siglip siglip2 smolvlm swiftformer swin swin2sr swinv2 table-transformer timesformer upernet videomae
    vilt visual_bert vit vit_mae vit_msn vitpose_backbone vivit vjepa2 yolos zoedepth
"""
_SOUNDS = """
    audio-spectrogram-transformer clap data2vec-audio encodec hubert moonshine musicgen_decoder parakeet_ctc qwen2_audio
    sew sew-d speech_to_text speecht5 unispeech unispeech-sat wav2vec2 wav2vec2-bert wav2vec2-conformer wavlm whisper
"""
_SERIES = """
    autoformer decision_transformer informer patchtsmixer patchtst time_series_transformer timesfm
"""
MODEL_TYPES: tuple[str, ...] = tuple(
    " ".join((_DECODERS, _ENCODERS, _ENCODER_DECODERS, _IMAGES, _SOUNDS, _SERIES)).split()
)
"""The types that are tried."""

_TOKENS = 32
_SMALL: dict[str, int] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "hidden_dim", "word_embed_proj_dim",
                     "projection_dim", "projection_size", "embedding_size", "out_hidden_size", "emb_dim",
                     "embedding_dim", "conv_hidden_size"), 64),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "ffn_dim", "n_inner",
                     "moe_intermediate_size", "shared_expert_intermediate_size", "feed_forward_hidden_size"), 128),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers",
                     "num_decoder_layers", "num_encoder_layers", "depth", "decoder_num_hidden_layers",
                     "num_blocks"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads",
                     "decoder_attention_heads", "num_decoder_attention_heads", "num_encoder_attention_heads",
                     "decoder_num_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "multi_query_group_num"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "d_head", "v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim",
                     "mamba_d_head", "mamba_head_dim"), 16),
    **dict.fromkeys(("vocab_size", "n_vocab", "decoder_vocab_size"), 1000),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "top_k", "moe_k"), 2),
    **dict.fromkeys(("image_size", "img_size"), 64),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "coordinate_size"), 8),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 32),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    **dict.fromkeys(("attn_layer_period",), 2),
    **dict.fromkeys(("attn_layer_offset",), 1),
    "max_source_positions": 50,
    "rotary_dim": 8,
    "shape_size": 16,
}  # fmt: skip
"""Setting → its small value. Larger defaults come down to it; smaller ones and switches (0) stay."""

_OPEN: dict[str, int] = {
    "vocab_size": 1000,
    "head_dim": 16,
    "num_key_value_heads": 2,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "prediction_length": 8,
    "context_length": 32,
}
"""Settings that some types leave open (None): what published configurations say, in small."""

_DERIVED = ("qk_head_dim", "out_features", "out_indices", "stage_names", "attention_layers", "layer_types",
            "layers_block_type", "mlp_layer_types")  # fmt: skip
"""Settings that follow from others: left out, so that they do."""

_MULTIMODAL_ROPE = {"text_config": {"rope_parameters": {"mrope_section": [2, 3, 3]}}}
_OWN: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "blip-2": {"image_token_index": 999},
    "deepseek_v2": {"num_key_value_heads": 4},
    "deepseek_v3": {"num_key_value_heads": 4},
    "esm": {"pad_token_id": 1, "mask_token_id": 32},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "longcat_flash": {"num_key_value_heads": 4},
    "mamba2": {"num_heads": 8},
    "qwen2_5_vl": _MULTIMODAL_ROPE,
    "qwen2_vl": _MULTIMODAL_ROPE,
    "qwen3_next": {"num_hidden_layers": 4},
    "reformer": {"axial_pos_embds_dim": [16, 48], "axial_pos_shape": [4, 8]},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 3},
    "zamba2": {"num_hidden_layers": 3},
}
"""What a single type needs besides."""


def small_configuration(transformers: Any, model_type: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A configuration of this type as `config.json` would hold it, and the workload's sizes that go with it."""
    plain = transformers.CONFIG_MAPPING[model_type]().to_dict()
    _shrink(plain)
    _merge(plain, _OWN.get(model_type, {}))
    return plain, {} if model_type in _SOUNDS.split() else {"seq_len": _TOKENS}


def _merge(plain: dict[str, Any], own: dict[str, Any]) -> None:
    for name, value in own.items():
        if isinstance(value, dict) and isinstance(plain.get(name), dict):
            _merge(plain[name], value)
        else:
            plain[name] = value


def _shrink(plain: dict[str, Any]) -> None:
    for name in _DERIVED:
        plain.pop(name, None)
    in_stages = isinstance(plain.get("depths"), list)
    if in_stages:
        # Widths, heads and windows by stage follow from each other: such models stay as they are.
        plain.pop("hidden_size", None)
        plain.pop("num_layers", None)
    for name, value in plain.items():
        if isinstance(value, dict):
            _shrink(value)
        elif name == "mrope_section":
            plain[name] = [2, 3, 3]
        elif in_stages or "width_coefficient" in plain:
            continue
        elif name in _SMALL and type(value) is int:
            plain[name] = min(value, _SMALL[name])
        elif value is None and name in _OPEN:
            plain[name] = _OPEN[name]
        elif isinstance(name, str) and name.endswith(("_token_id", "_token_index")) and type(value) is int:
            plain[name] = value % 1000
