#pragma once
// The functions of cuBLASLt that are used. They hide the library's declarations of the same names
// within quire::cuda; the library is opened at the first call.

#include <cublasLt.h>

#include "cuda/runtime/shared_library.h"

namespace quire::cuda {

// cublaslt_library.cpp: where it is looked for.
const SharedLibrary& cublaslt();
// In one sentence what is wrong with a library that is missing (and why), or of this version, which
// is as cublasLtGetVersion() says; empty: nothing.
std::string why_no_cublaslt(const std::string& missing, std::size_t version);

template <class Function>
using CublasLt = LibraryFunction<&cublaslt, Function>;

inline CublasLt<decltype(::cublasLtCreate)> cublasLtCreate{"cublasLtCreate"};
inline CublasLt<decltype(::cublasLtDestroy)> cublasLtDestroy{"cublasLtDestroy"};
inline CublasLt<decltype(::cublasLtGetStatusString)> cublasLtGetStatusString{
    "cublasLtGetStatusString"};
inline CublasLt<decltype(::cublasLtGetVersion)> cublasLtGetVersion{"cublasLtGetVersion"};
inline CublasLt<decltype(::cublasLtMatmul)> cublasLtMatmul{"cublasLtMatmul"};
inline CublasLt<decltype(::cublasLtMatmulAlgoCheck)> cublasLtMatmulAlgoCheck{
    "cublasLtMatmulAlgoCheck"};
inline CublasLt<decltype(::cublasLtMatmulAlgoGetHeuristic)> cublasLtMatmulAlgoGetHeuristic{
    "cublasLtMatmulAlgoGetHeuristic"};
inline CublasLt<decltype(::cublasLtMatmulDescCreate)> cublasLtMatmulDescCreate{
    "cublasLtMatmulDescCreate"};
inline CublasLt<decltype(::cublasLtMatmulDescDestroy)> cublasLtMatmulDescDestroy{
    "cublasLtMatmulDescDestroy"};
inline CublasLt<decltype(::cublasLtMatmulDescSetAttribute)> cublasLtMatmulDescSetAttribute{
    "cublasLtMatmulDescSetAttribute"};
inline CublasLt<decltype(::cublasLtMatmulPreferenceCreate)> cublasLtMatmulPreferenceCreate{
    "cublasLtMatmulPreferenceCreate"};
inline CublasLt<decltype(::cublasLtMatmulPreferenceDestroy)> cublasLtMatmulPreferenceDestroy{
    "cublasLtMatmulPreferenceDestroy"};
inline CublasLt<decltype(::cublasLtMatmulPreferenceSetAttribute)>
    cublasLtMatmulPreferenceSetAttribute{"cublasLtMatmulPreferenceSetAttribute"};
inline CublasLt<decltype(::cublasLtMatrixLayoutCreate)> cublasLtMatrixLayoutCreate{
    "cublasLtMatrixLayoutCreate"};
inline CublasLt<decltype(::cublasLtMatrixLayoutDestroy)> cublasLtMatrixLayoutDestroy{
    "cublasLtMatrixLayoutDestroy"};
inline CublasLt<decltype(::cublasLtMatrixLayoutSetAttribute)> cublasLtMatrixLayoutSetAttribute{
    "cublasLtMatrixLayoutSetAttribute"};

}  // namespace quire::cuda
