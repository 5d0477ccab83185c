// Stands for cuBLAS in programs that set it up and do not use it: there are handles,
// and every call succeeds.  A program that multiplies with it does not compile.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32 };
enum cublasMath_t { CUBLAS_DEFAULT_MATH, CUBLAS_TF32_TENSOR_OP_MATH };
typedef struct cublasContext *cublasHandle_t;

inline cublasStatus_t cublasCreate(cublasHandle_t *made) {
    *made = nullptr;
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasDestroy(cublasHandle_t) {
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
    return CUBLAS_STATUS_SUCCESS;
}
