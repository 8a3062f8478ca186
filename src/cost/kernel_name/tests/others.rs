//! Kernels other than GEMM, convolution and attention.

use super::check;
use crate::cost::kernel_name::{decode, is_communication};

#[test]
fn elementwise_and_reduction_kernels_are_decoded() {
    check(
        "
void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)
    pointwise no fp32 strided | elementwise: mul
void at::native::(anonymous namespace)::unrolled_elementwise_kernel_for_multi_outputs<3, at::native::(anonymous namespace)::batch_norm_update_stats_and_invert(at::Tensor const&, at::Tensor const&, at::Tensor const&, at::Tensor const&, double, double, long)::{lambda()#1}::operator()() const::{lambda()#4}::operator()() const::{lambda(float, float, c10::BFloat16, c10::BFloat16)#1}, std::array<char*, 7ul>, TrivialOffsetCalculator<4, unsigned int>, TrivialOffsetCalculator<3, unsigned int> >(int)
    norm no fp32 contiguous | elementwise: batch_norm_update_stats_and_invert
void at::native::vectorized_elementwise_kernel<4, at::native::compare_scalar_kernel<double>(at::TensorIteratorBase&, at::native::(anonymous namespace)::OpType, double)::{lambda(double)#1}, at::detail::Array<char*, 2> >(int)
    pointwise no fp64 contiguous | elementwise: compare
void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int)
    pointwise no bf16 contiguous | elementwise: add
void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda()#6}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int)
    pointwise no bf16 contiguous | elementwise: silu
void at::native::vectorized_elementwise_kernel<(int)4, at::native::exp_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 2)]::operator ()() const::[lambda() (instance 2)]::operator ()() const::[lambda(float) (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)
    pointwise no fp32 contiguous | elementwise: exp
void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<at::native::<unnamed>::where_kernel_impl(at::TensorIterator &)::[lambda() (instance 1)]::operator ()() const::[lambda() (instance 7)]::operator ()() const::[lambda(bool, float, float) (instance 1)]>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)
    pointwise no fp32 strided | elementwise: where
void at::native::vectorized_elementwise_kernel<(int)8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase &, at::native::GeluType)::[lambda() (instance 1)]::operator ()() const::[lambda() (instance 4)]::operator ()() const::[lambda(c10::BFloat16) (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)
    pointwise no bf16 contiguous | elementwise: gelu
_ZN2at6native18elementwise_kernelILi512ELi1EZNS0_15gpu_kernel_implIZNS0_21threshold_kernel_implIfEEvRNS_14TensorIteratorET_S6_EUlffE_EEvS5_RKS6_EUliE0_EEviT1_
    pointwise no fp32 strided | elementwise: threshold
void at::native::elementwise_kernel_manual_unroll<128, 8, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<c10::BFloat16> >(at::TensorIteratorBase&, at::native::CUDAFunctor_add<c10::BFloat16> const&)::{lambda(int, bool)#1}>(int)
    pointwise no bf16 strided | elementwise: add
void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const::[lambda() (instance 7)]::operator ()() const::[lambda(float) (instance 1)]>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)
    copy no fp32 strided | elementwise: copy
void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(c10::complex<float>) (instance 1)]>(at::TensorIteratorBase &)>(int, T3)
    copy no complex64 strided
void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int)
    cast no fp32 contiguous | elementwise: copy (-> fp32)
void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(long)#1}, at::detail::Array<char*, 2>, OffsetCalculator<1, unsigned int>, OffsetCalculator<1, unsigned int>, at::native::memory::LoadWithoutCast, at::native::memory::StoreWithoutCast>(int)
    copy no int64 strided | elementwise: copy
void at::native::vectorized_elementwise_kernel<(int)8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(float) (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)
    cast no bf16 contiguous | elementwise: copy (float -> bf16)
void at::native::vectorized_elementwise_kernel<4, at::native::float16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int)
    cast no fp16 contiguous | elementwise: copy (float -> fp16)
void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16tofloat32_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int)
    cast no fp32 contiguous | elementwise: copy (bf16 -> float)
void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, at::detail::Array<char*, 1> >(int)
    fill no int32 contiguous | elementwise: fill
void <unnamed>::elementwise_kernel_with_index<int, at::native::arange_cuda_out(const c10::Scalar &, const c10::Scalar &, const c10::Scalar &, at::Tensor &)::[lambda() (instance 1)]::operator ()() const::[lambda() (instance 4)]::operator ()() const::[lambda(long) (instance 1)]>(T1, T2, x)
    fill no int64 contiguous | elementwise: arange
void at::native::vectorized_elementwise_kernel<4, at::native::mse_kernel_cuda(at::TensorIteratorBase&)::{lambda(float, float)#1}, std::array<char*, 3ul> >(int)
    loss no fp32 contiguous | elementwise: mse
void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, at::native::templates::cuda::uniform_and_transform<float, float, 4ul, at::CUDAGeneratorImpl*>(x)::{lambda(float)#1}>(y)
    random no fp32 | random: uniform
void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_put_kernel_impl<at::native::OpaqueType<4> >(at::TensorIterator&, c10::ArrayRef<long>, c10::ArrayRef<long>)::{lambda(char*, char*, long)#1}>(x)::{lambda(int)#1}>(int)
    index no | index_put
void at::native::_scatter_gather_elementwise_kernel<128, 4, at::native::_cuda_scatter_gather_internal_kernel<true, float>::operator()<at::native::ReduceAdd>(at::TensorIterator&, long)::{lambda(int)#1}>(int)
    index no fp32 | index: scatter_gather
_Z21kernelPointwiseApply3I10TensorEQOpIfhEhffjLi1ELi1ELi1EEv10OffsetInfoIT0_T3_XT4_EES2_IT1_S4_XT5_EES2_IT2_S4_XT6_EES4_T_
    pointwise no fp32 | elementwise: eq
void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int, float, 4> >(x)
    reduce no fp32 | reduce: mean
void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::sum_functor<float, float, float>::operator ()(at::TensorIterator &)::[lambda(float, float) (instance 1)]>, unsigned int, float, (int)4>>(T3)
    reduce no fp32 | reduce: sum
void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::Half, at::native::ArgMaxOps<float>, unsigned int, long, 4> >(x)
    reduce no fp16 | reduce: argmax
_ZN2at6native13reduce_kernelILi512ENS0_8ReduceOpIfNS0_7NormOpsIfEEjfLi4EEEEEvT0_
    reduce no fp32 | reduce: norm
triton_poi_fused__scaled_dot_product_flash_attention_cat_5
    pointwise no triton | triton pointwise: scaled_dot_product_flash_attention_cat
triton_poi_fused_add_cos_sin_0
    pointwise no triton | triton pointwise: add_cos_sin
triton_red_fused_native_layer_norm_2
    reduce no triton | triton reduce: native_layer_norm
triton_per_fused__softmax_mm_1
    reduce no triton
// The padding of the input of a product, the bias of one, partial sums of one, a product in int8.
triton_red_fused_mm_native_layer_norm_2
    reduce no triton
triton_red_fused_add_addmm_3
    reduce no triton
triton_per_fused_mm_0
    reduce no triton
triton_red_fused__int_mm_mul_1
    reduce no triton
triton__0d1d2d3d
    fused ? triton
",
    );
}

#[test]
fn other_pytorch_kernels_are_decoded() {
    check(
        "
_ZN2at6native78_GLOBAL__N__54_tmpxft_00008e34_00000000_11_SoftMax_compute_75_cpp1_ii_a331004219cunn_SoftMaxForwardILi2EfffNS1_25LogSoftMaxForwardEpilogueEEEvPT2_PT0_i
    softmax no fp32 | log_softmax forward
void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16, at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(x)
    softmax no bf16 | softmax forward
void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>(float*)
    softmax no fp32 | log_softmax forward
void <unnamed>::softmax_warp_forward<float, float, float, (int)6, (bool)0, (bool)0>(T2 *)
    softmax no fp32 | softmax forward
void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, true>(float*)
    softmax no fp32 | log_softmax backward
void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int)
    norm no fp32
void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<float, float>(long)
    norm no fp32
void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(x)
    norm no fp32
void at::native::batch_norm_collect_statistics_kernel<at::native::Var, c10::BFloat16, c10::BFloat16, float, int>(x)
    norm no bf16
std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(x)
    norm no bf16 | fused_add_rms_norm_kernel
_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib
    norm no bf16
void at::native::(anonymous namespace)::GroupNormForwardCUDAKernel<float>(x)
    norm no fp32
MIOpenBatchNormFwdTrainSpatial
    norm no
void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(x)
    loss no fp32
_Z42cunn_ClassNLLCriterion_updateOutput_kernelIffEvPT_S1_S1_PlS1_iiiil
    loss no fp32
void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, float, float, adamMode_t, float, int, int>(x)
    optimizer no fp32 | foreach: adam
void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)0, false>, float>(x)
    optimizer no fp32 | foreach: fused_adam
void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)2>, at::native::<unnamed>::UnaryOpFunctor<long, (int)2, (int)1, (int)1>, at::native::Copy<long, long>>(T1, T2, T3...)
    copy no int64 | foreach: copy
void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float>(x)
    optimizer no fp32 | foreach: add
void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListScalarListMetadata<float, 3>, at::native::(anonymous namespace)::PointwiseOpScalarListFunctor<float, 3, 3, 0>, std::divides<float> >(x)
    optimizer no fp32 | foreach: addcdiv
void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, at::native::(anonymous namespace)::TernaryOpScalarFunctor<float, 2, 2, 0>, at::native::LerpFunctor<float>, float>(x)
    optimizer no fp32 | foreach: lerp
void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(x)
    dropout no fp32
void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)
    cat no fp32 | cat
void at::native::<unnamed>::CatArrayBatchedCopy_vectorized<at::native::<unnamed>::OpaqueType<(unsigned int)2>, unsigned int, (int)1, (int)128, (int)1, (int)16, (int)8>(char *)
    cat no | cat
void at::native::<unnamed>::upsample_bilinear2d_out_frame<float, float>(int, T2)
    interpolate no fp32 | upsample_bilinear2d_out_frame
void at::native::(anonymous namespace)::grid_sampler_2d_kernel<float, int>(x)
    interpolate no fp32
void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int)
    pool no fp32
void at::native::(anonymous namespace)::adaptive_average_pool<float>(x)
    pool no fp32
void pooling_fw_4d_kernel<float, float, cudnn::maxpooling_func<float>, 0, false>(x)
    pool no fp32
void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>(x)
    embedding no bf16 | index_select
void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)
    index no | gather
void cunn_LookupTableBag_accGradParametersKernel<float, float>(long*, float*)
    embedding no fp32
void split_embedding_codegen_forward_unweighted_kernel<c10::Half, c10::Half, float, false, long, 2ul, 32ul>(x)
    embedding no fp16
void permute_pooled_embs_kernel<float>(float const*)
    copy no fp32
void fbgemm_gpu::permute_2D_data_kernel<false, int, int, decltype(nullptr)>(int)
    index no
void fbgemm_gpu::(anonymous namespace)::_compute_FP8_quantize_cuda_kernel<float>(x)
    quantize no fp32
void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>(x)
    quantize no bf16
void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)
    pointwise no bf16
void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800, false, long, int, int, int>(x)
    sort no | radix sort
void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(x)
    sort no fp32 | topk
void cub::DeviceScanKernel<cub::AgentScanPolicy<128, 15, int>>(x)
    scan no | scan
void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 16, 1, false, true, true, true, c10::BFloat16, c10::complex<float> > >(SSMParamsBase)
    scan no bf16
_chunk_scan_fwd_kernel
    scan no triton
void at::native::triu_tril_kernel<float, int, false, 2, false>(x)
    pointwise no fp32
void RNN_blockPersist_fp_LSTM<float, float, float, 160>(x)
    rnn ? fp32 persistent
void at::native::(anonymous namespace)::kernel::lstm_cell_forward<float, float, int, 1>(x)
    rnn no fp32
void elemWiseRNNcell<__half, __half, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>(x)
    rnn no fp16
void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char, (vllm::Fp8KVCacheDataType)1>(x)
    index no bf16
[CUDA memcpy HtoD]
    memcpy no
Memcpy HtoD (Pinned -> Device)
    memcpy no
Memset (Device)
    memset no

    unknown ?
spin_kernel(long)
    unknown ? | spin_kernel
",
    );
}

#[test]
fn helper_kernels_are_decoded() {
    check(
        "
void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16, float, __nv_bfloat16, true>(x)
    helper no bf16 splitk helper | split-K reduction
void splitKreduce_kernel<float, float, float, float>(cublasSplitKParams<float>)
    helper no fp32 splitk helper
void epilogue::impl::globalKernel<float, float, float, true, true>(int)
    helper no fp32 helper | GEMM epilogue
void scal_kernel<float, float, 1, false, 6, 5, 5, 3>(x)
    helper no fp32 helper
void reduce_1Block_kernel<float, 128, 7, cublasGemvTensor<float> >(x)
    helper no fp32 helper
void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*)
    helper no fp32 helper
void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(x)
    helper no fp32 helper fast
void cudnn::winograd::generateWinogradTilesKernel<0, float, float>(x)
    helper no fp32 helper fast
void fft2d_r2c_32x32<float, (bool)0, (unsigned int)1, (bool)0>(float2 *)
    helper no fp32 helper fast
void cask_cudnn_infer::computeOffsetsKernel<false, false>(x)
    helper no helper | conv offsets
void xmma_cudnn::gemm::split_k_kernel<xmma_cudnn::implicit_gemm::wgrad_indexed::Kernel_traits<x>>(T1::Params)
    helper no helper | split-K reduction
cask_cudnn_train::computeWgradSplitKOffsetsKernel(x)
    helper no splitk helper
void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)2>(x)
    layout no fp16 helper | layout: NCHW -> NHWC
void nhwcToNchwKernel<float, float, float, true, false, (cudnnKernelDataType_t)0>(int)
    layout no fp32 helper | layout: NHWC -> NCHW
batched_transpose_16x32_half
    layout no helper
void cuda::batched_transpose<512, 128, 1, 1>(unsigned char const*, unsigned char*, unsigned long)
    copy no
transpose_CNHW2NCHW_V2_2D_WG_off64
    layout no helper
SubTensorOpWithCastTensor1d
    helper no helper
void flip_filter<float, float>(T2 *)
    helper no fp32 helper
void deformable_im2col_gpu_kernel<float>(int)
    helper no fp32 helper
_finalize_matmul_scatter_bf16
    helper no helper
",
    );
}

#[test]
fn communication_kernels_are_decoded() {
    check(
        "
ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)
    communication no fp32 all_reduce persistent | nccl all_reduce
ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)
    communication no bf16 all_reduce persistent
ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)
    communication no send_recv persistent | nccl send_recv
ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)
    communication no send_recv persistent
ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)
    communication no all_gather persistent
ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)
    communication no fp32 reduce_scatter persistent
ncclDevKernel_AllReduce_Sum_f8e4m3_RING_LL(x)
    communication no fp8 all_reduce persistent
_Z33ncclAllReduceTreeLLKernel_sum_i328ncclColl
    communication no all_reduce persistent
_Z33ncclBroadcastRingLLKernel_copy_i88ncclColl
    communication no broadcast persistent
ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)
    communication no persistent | nccl collective
void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(x)
    communication no bf16 all_reduce persistent
void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(x)
    communication no bf16 all_reduce persistent
void dpsk::ep::internode::combine<false, 8, __nv_bfloat16>(x)
    communication no bf16 all_to_all persistent
",
    );
    assert!(is_communication("ncclDevKernel_SendRecv(x)"));
    for name in [
        "triton_poi_fused_all_reduce_0",
        "ampere_sgemm_128x64_tn",
        "void at::native::reduce_kernel<1>(x)",
        "",
    ] {
        assert!(!is_communication(name), "{name}");
    }
}

#[test]
fn data_movement_kernels_have_an_element_size() {
    let cat = |element: &str| {
        let name = format!(
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<{element}, unsigned int, 4, 64, 64>(x)"
        );
        decode(&name).element_bytes
    };
    assert_eq!(
        cat("at::native::(anonymous namespace)::OpaqueType<2u>"),
        Some(2)
    );
    assert_eq!(
        cat("at::native::<unnamed>::OpaqueType<(unsigned int)16>"),
        Some(16)
    );
    assert_eq!(cat("at::native::OpaqueType<3u>"), None);
    assert_eq!(cat("float"), None);
}
