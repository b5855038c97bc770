/* A libcuda.so.1 for machines without an NVIDIA driver.
 *
 * cuDNN's heuristics and plan sizes need no device, but its libraries look the driver's entry points up when they are
 * loaded. Each entry here takes whatever it is given and answers CUDA_ERROR_NO_DEVICE. Nothing of it ever computes.
 * `python -m lab build-stub` makes the shared objects beside this file.
 */

#define CUDA_ERROR_NO_DEVICE 100
#define ENTRY(name) \
    __attribute__((visibility("default"))) int name(void) { return CUDA_ERROR_NO_DEVICE; }

/* Start-up, versions, devices, contexts */
ENTRY(cuInit)
ENTRY(cuDriverGetVersion)
ENTRY(cuGetProcAddress)
ENTRY(cuGetProcAddress_v2)
ENTRY(cuGetErrorName)
ENTRY(cuGetErrorString)
ENTRY(cuDeviceGet)
ENTRY(cuDeviceGetAttribute)
ENTRY(cuDeviceGetCount)
ENTRY(cuDeviceGetName)
ENTRY(cuDevicePrimaryCtxRetain)
ENTRY(cuDevicePrimaryCtxRelease)
ENTRY(cuCtxGetCurrent)
ENTRY(cuCtxSetCurrent)
ENTRY(cuCtxGetDevice)
ENTRY(cuCtxGetLimit)
ENTRY(cuCtxPopCurrent)
ENTRY(cuCtxPopCurrent_v2)
ENTRY(cuCtxPushCurrent)
ENTRY(cuCtxPushCurrent_v2)
ENTRY(cuCtxSynchronize)
ENTRY(cuStreamGetCtx)
ENTRY(cuStreamGetCtx_v2)

/* Code: modules, libraries, linking */
ENTRY(cuModuleGetFunction)
ENTRY(cuModuleGetGlobal)
ENTRY(cuModuleGetGlobal_v2)
ENTRY(cuModuleLoadData)
ENTRY(cuModuleLoadDataEx)
ENTRY(cuModuleUnload)
ENTRY(cuLibraryGetKernel)
ENTRY(cuLibraryGetModule)
ENTRY(cuLibraryLoadData)
ENTRY(cuLibraryLoadFromFile)
ENTRY(cuLibraryUnload)
ENTRY(cuLinkCreate)
ENTRY(cuLinkCreate_v2)
ENTRY(cuLinkAddData)
ENTRY(cuLinkAddData_v2)
ENTRY(cuLinkComplete)
ENTRY(cuLinkDestroy)

/* Kernels */
ENTRY(cuFuncGetAttribute)
ENTRY(cuFuncSetAttribute)
ENTRY(cuKernelGetAttribute)
ENTRY(cuKernelGetFunction)
ENTRY(cuKernelSetAttribute)
ENTRY(cuLaunchCooperativeKernel)
ENTRY(cuLaunchKernel)
ENTRY(cuLaunchKernelEx)
ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor)
ENTRY(cuOccupancyMaxActiveClusters)
ENTRY(cuOccupancyMaxPotentialClusterSize)
ENTRY(cuTensorMapEncodeIm2col)
ENTRY(cuTensorMapEncodeTiled)
