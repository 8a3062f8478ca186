//! GEMMs, convolution_kernels_are_decoded, attention.

use super::check;

#[test]
fn gemm_kernels_are_decoded() {
    check(
        "
ampere_sgemm_128x64_tn
    gemm no fp32 128x64 tn sm8.0 | ampere_sgemm_128x64_tn
// Kernels of a program that CUTLASS' wrapper runs are told apart.
void cutlass::device_kernel<mine::cuda::fp8_acc::GemmKernel>(mine::cuda::fp8_acc::GemmKernel::Params)
    gemm ? fp8 persistent | cutlass gemm (fp8_acc::GemmKernel)
void cutlass::device_kernel<mine::bf16_to_fp8::GemmKernel>(mine::bf16_to_fp8::GemmKernel::Params)
    gemm ? persistent | cutlass gemm (bf16_to_fp8::GemmKernel)
volta_sgemm_32x32_sliced1x4_tn
    gemm no fp32 32x32 tn sm7.0
maxwell_sgemm_128x64_nn
    gemm no fp32 128x64 nn sm5.0
volta_dgemm_64x64_nn
    gemm no fp64 64x64 nn sm7.0
volta_hgemm_128x64_nt
    gemm no fp16 128x64 nt sm7.0
volta_cgemm_32x32_tn
    gemm no complex64 32x32 tn sm7.0
volta_sgemm_fp16_128x64_nn
    gemm no fp16 128x64 nn sm7.0
volta_h884gemm_64x128_ldg8_nn
    gemm yes fp16 64x128 align8 nn sm7.0 sum16
volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_tn
    gemm yes fp16 128x64 align8 tn sm7.0 | volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_tn
turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_nt
    gemm yes fp16 256x128 align8 nt sm7.5
turing_h1688gemm_128x128_ldg2_nn
    gemm yes fp16 128x128 align2 nn sm7.5 sum16
ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn
    gemm yes fp16 128x128x32 align8 tn sm8.0
ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn
    gemm yes bf16 128x64x64 align8 nn sm8.0
turing_int8_i8816gemm_int8_128x128_ldg16_nt
    gemm yes int8 128x128 align16 nt sm7.5
sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas
    gemm no fp32 64x256x8 tn sm8.0 | sm80_xmma_gemm fp32 tn 64x256x8 ffma
sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_split_k_kernel__5x_cublas
    gemm no fp32 128x128x8 tn sm8.0 splitk | sm80_xmma_gemm fp32 tn 128x128x8 ffma split-k
sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas
    gemm yes bf16 128x128x64 tn sm9.0 persistent | sm90_xmma_gemm bf16 tn 128x128x64
sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize96x128x32_stage4_warpsize2x2x1_tensor16x8x16_execute_kernel__51_cublas
    gemm yes fp16 96x128x32 nn sm8.0
sm80_xmma_gemm_tf32f32_tf32f32_f32_nt_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_execute_kernel__5x_cublas
    gemm yes tf32 128x128x16 nt sm8.0
sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize256x64x16_stage4_warpsize4x1x1_tensor16x8x8_execute_kernel__5x_cublas
    gemm yes tf32 256x64x16 nn sm8.0
void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align1>(cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align1::Params)
    gemm yes tf32 128x64x32 align1 nt sm8.0 | cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align1
void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(T1::Params)
    gemm yes bf16 128x128 align1 nn sm7.5
void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>(x)
    gemm yes bf16 64x64x64 align8 tn sm8.0 | cutlass_80_tensorop_bf16_s16816gemm_relu_bf1…_64x6_tn_align8
void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(x)
    gemm yes bf16 32x32x128 align8 tn sm8.0
void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(T1::Params)
    gemm no fp32 128x32x8 align1 nn sm8.0
void cutlass::Kernel<cutlass_70_tensorop_f16_s884gemm_f16_128x128_32x2_tt_align2>(x)
    gemm yes fp16 128x128x32 align2 tt sm7.0
cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_f16_f16_128x128x64_2x1x1_0_tnn_align8_warpspecialized_cooperative_epi_tma
    gemm yes fp16 128x128x64 align8 tnn sm9.0 persistent
void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int>, cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4>, cute::tuple<cute::C<128>>, cutlass::bfloat16_t>, x>>(T1::Params)
    gemm yes bf16 persistent | cutlass gemm bf16
void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::MmaPipelined<cutlass::gemm::GemmShape<128, 128, 8>, float, cutlass::arch::OpClassSimt>, float>>(T1::Params)
    gemm no fp32
// Reads fp32 and multiplies in fp16.
void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::MmaPipelined<cutlass::gemm::GemmShape<(int)128, (int)128, (int)32>, cutlass::transform::threadblock::PredicatedTileIterator<cutlass::MatrixShape<(int)128, (int)32>, float>, cutlass::gemm::warp::MmaTensorOp<cutlass::arch::Mma<cutlass::gemm::GemmShape<(int)16, (int)8, (int)8>, (int)32, cutlass::half_t, cutlass::layout::RowMajor, cutlass::half_t, cutlass::layout::ColumnMajor, float>>>>>(T1::Params)
    gemm yes fp16 | cutlass gemm fp16
nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN
    gemm yes bf16 192x192x64 TNN persistent | nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN
nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTN
    gemm yes fp16 128x256x64 NTN persistent
nvjet_tst_96x64_64x10_1x2_h_bz_splitK_TNN
    gemm yes bf16 96x64x64 TNN splitk persistent
nvjet_sm100_tst_64x64_64x16_2x1_2cta_v_bz_TNT
    gemm yes bf16 64x64x64 TNT sm10.0 persistent
bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_schedP2x1x2x3_biasM_bN_tma_tmaOpt_clmp_swiGlu_dynBatch_sm100f
    gemm yes fp8 128x16x256 TN sm10.0
bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x8x128_s4_et128x8_m128x8x16_cga1x1x1_16dp256b_TN_sm100a
    gemm yes bf16 128x8x128 TN sm10.0
std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, float, float, false, true, true, false, 7, cublasGemvParams<x, float> >(y)
    gemm no fp32 | gemv fp32
std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, (bool)0, (bool)1, (int)6>(T13)
    gemm no bf16 | gemv bf16
void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(x)
    gemm no fp32
void gemvNSP_kernel<double, double, double, double, 1, 32, 4, 1024>(x)
    gemm no fp64
void gemmSN_TN_kernel<float, 128, 16, 2, 4, 10, 11, false, x>(y)
    gemm no fp32
void gemmk1_kernel<float, 256, 5, false, false>(x)
    gemm no fp32
void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const> > >(x)
    gemm no fp32
void sgemm_largek_lds64<true, true, 6, 3, 4, 5, 2, 66>(float*, float const*)
    gemm no fp32
void magma_sgemmEx_kernel<float, float, float, false, false, 6, 3, 5, 3, 3>(int)
    gemm no fp32
Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64_MI16x16x1_SN_LDSB1_GSU0_ISA942
    gemm yes bf16 256x32x64 tn | Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_User 256x32x64
Cijk_Ailk_Bjlk_HHS_BH_MT64x64x32_SE_GSU4_K1
    gemm no fp16 64x64x32 nt splitk
Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN_SK3
    gemm yes fp32 16x16x128 nn persistent
Cijk_Ailk_Bljk_DB_MT128x64x16_MI16x16x4x1_SN.kd
    gemm yes fp64 128x64x16 nn
Cijk_S_PostGSU4_VW4
    helper no helper
void deep_gemm::fp8_gemm_kernel<7168u, 4096u, 128u, 128u, 128u>(__nv_bfloat16*)
    gemm yes fp8 persistent
_ZN2ck16tensor_operation6device12_GLOBAL__N_117kernel_gemm_xdl_cshuffleIDF16_EEv
    gemm yes
_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1
    gemm yes bf16 16x128x256 triton
_p_matmul_ogs_NTN_fp16xfp8e4nvxmxfp4_128x256x128x2_swiglu
    gemm yes fp8 128x256x128 splitk persistent triton
_matmul_ogs_of_mine
    gemm ? triton
triton_tem_fused__int_mm__to_copy_add_clamp_7
    gemm ? int8 triton
triton_mm
    gemm ? triton
triton_tem_fused_addmm_relu_3
    gemm ? triton | triton gemm: addmm_relu
triton_red_fused_mm_silu_mul_5
    gemm ? triton | triton gemv: mm_silu_mul
triton_red_fused_mm_t_0
    gemm ? triton
my_gemm_kernel(float*)
    gemm ? | my_gemm_kernel
void MatrixMulCUDA<32>(float*, float*, float*, int, int)
    gemm ?
",
    );
}

#[test]
fn products_of_libraries_for_inference_are_decoded() {
    check(
        "
void marlin::Marlin<__nv_bfloat16, 1125899906909960l, 256, 1, 8, 8, true, 4, 8, false>(int4 const*, int4 const*)
    gemm yes bf16 | Marlin
void marlin_moe_wna16::Marlin<1125899906909960l, 256, 1, 8, 8, true, 4, 8, false>(int4 const*)
    gemm yes
void marlin::marlin_int4_fp8_preprocess_kernel_awq(int const*, int const*, int*, int, int, int)
    unknown ?
void at::native::tinygemm_m16n8k16_chunk_kernel<at::native::ALayout_RM<(at::native::KReductionType)0>, at::native::BLayout_TC_int4<8, 128>, at::native::CLayout>(void const*)
    gemm yes | tinygemm_m16n8k16_chunk_kernel
void kgemm_4bit_inference_naive<__nv_bfloat16, 128, 16>(int, int, int, __nv_bfloat16*, unsigned char*, float*)
    gemm ? bf16
void tensorrt_llm::kernels::weight_only::kernel<tensorrt_llm::kernels::weight_only::KernelDetails<tensorrt_llm::kernels::weight_only::FP16DetailsA, tensorrt_llm::kernels::weight_only::Int4DetailsW>, 1, 8>(Params)
    gemm no
void wvSplitK_hf_sml_<__hip_bfloat16, 64, 4, 16, 8, 1, 4>(int)
    gemm ? bf16
void LLGemm1_kernel<c10::BFloat16, 4>(c10::BFloat16 const*)
    gemm ? bf16
void mul_mat_vec_q<(ggml_type)12, 1, false>(void const*, void const*, float*)
    gemm ?
void dequantize_mul_mat_vec<1, 1, &(dequantize_q4_0(void const*))>(void const*, float const*, float*)
    gemm ?
_ZN5aiter50fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256E
    gemm yes fp8
_ZN5aiter50fmoe_bf16_pertokenMXfp4_g1u1_flat_novs_silu_16x128E
    gemm yes fp4
_ZN5aiter48fmoe_stage1_bf16_pertokenFp8_g1u1_64x128_2tg_pf3E
    gemm yes fp8
_ZN5aiter37fmoe_bf16_noquant_g1u0_vs_silu_32x256E
    gemm yes bf16
_ZN5aiter42fp8gemm_bf16_blockscale_BpreShuffle_32x128E
    gemm yes fp8
_ZN5aiter33f4gemm_bf16_per1x32Fp4_tn_256x256E
    gemm yes fp4
_ZN5aiter42i8gemm_bf16_perTokenI8_BpreShuffle_112x256E
    gemm yes int8
_ZN5aiter41bf16gemm_fp32bf16_tn_64x64_splitk_clean_E
    gemm yes bf16
",
    );
}

#[test]
fn convolution_kernels_are_decoded() {
    check(
        "
sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8_alignc4_execute_kernel_cudnn
    conv yes tf32 128x128x16 nhwc sm8.0 fwd | sm80_xmma_fprop tf32 nhwc 128x128x16
sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8_execute_kernel_cudnn_train
    conv yes tf32 128x128x16 nhwc sm8.0 wgrad
sm80_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_stage4_warpsize2x2x1_g1_tensor16x8x16_execute_split_k_kernel__5x_cudnn
    conv yes fp16 64x64x64 nhwc sm8.0 dgrad splitk
void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x64_32x5_nhwc_align4>(T1::Params)
    conv yes tf32 64x64x32 align4 nhwc fwd
_ZN19cutlass_cudnn_train6KernelI66cutlass_tensorop_s1688dgrad_optimized_tf32_64x128_32x3_nhwc_align4EEvv
    conv yes tf32 64x128x32 align4 nhwc dgrad
void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(x)
    conv yes bf16 256x64x32 align8 nhwc fwd
cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1
    conv no fp32 128x64 nn sm7.0
volta_scudnn_128x128_stridedB_splitK_small_nn_v1
    conv no fp32 128x128 nn sm7.0 splitk
cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1
    conv no fp32 128x64 nn sm8.0
_5x_cudnn_ampere_scudnn_128x64_relu_small_nn_v1
    conv no fp32 128x64 nn sm8.0
_5x_cudnn_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1
    conv no fp32 128x128 nt sm7.0 fast
sm80_xmma_deconv_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x64x32_tensor16x8x16_kernel_cudnn
    conv yes fp16 128x64x32 nhwc sm8.0 dgrad
volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1
    conv no fp32 128x128 nt sm7.0 fast | volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1
cudnn_infer_volta_scudnn_128x64_3dconv_fprop_medium_nn_v1
    conv no fp32 128x64 nn sm7.0 fwd
volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc_tn_v1
    conv yes fp16 256x64 align8 tn sm7.0
turing_fp16_s1688cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1
    conv yes fp16 128x128 align8 nt sm7.5 wgrad
volta_h884cudnn_256x64_ldg8_relu_exp_medium_nhwc_tn_v1
    conv yes fp16 256x64 align8 tn sm7.0 sum16
ampere_gcgemm_64x64_nt
    conv no complex64 64x64 nt sm8.0 fast
void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)
    conv no fp32 dgrad | dgrad_engine
void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)
    conv no fp32 wgrad
void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int)
    conv no fp32 fwd
void explicit_convolve_sgemm<float, int, 1024, 5, 5, 3, 3, 3, 0, false>(int)
    conv no fp32 fwd
void first_layer_wgrad_kernel<7, 3, 8, 2>(x)
    conv yes wgrad
void dgrad_1x1_stride_2x2<3, 0, 1>(x)
    conv yes dgrad
void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(x)
    conv no fp32 fwd
void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, float, float, float>(x)
    conv no fp32 fwd
igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt64x64x64_wt32x32x8_ws1x1_wr1x1_ta1x4x1x4_1x16x1x16_tb1x4x1x4_1x16x1x16_gkgs
    conv yes bf16 64x64x64 nhwc wgrad splitk
igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt128x128x32_wt32x32x8
    conv yes fp16 128x128x32 nhwc fwd
miopenSp3AsmConv_v30_3_1_gfx94x_fp32_f3x2_stride1
    conv no fp32 fast
_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_broken
    conv yes wgrad | kernel_batched_gemm_xdlops_bwd_weight
void ck::tensor_operation::device::kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle<x<unsigned short, unsigned short, float>>(y)
    conv yes bf16 fwd
triton_tem_fused_convolution_2
    conv ? triton
",
    );
}

#[test]
fn attention_kernels_are_decoded() {
    check(
        "
void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t> >, false, true, false, false, false, true, false>(pytorch_flash::Flash_fwd_params)
    attention yes bf16 128x128 causal whole | flash_fwd_kernel
void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, (int)4, (bool)0, (bool)0, cutlass::half_t, x>, (bool)0, (bool)0, (bool)0, (bool)0>(flash::Flash_fwd_params)
    attention yes fp16 128x64 full whole
void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4, false, false, cutlass::half_t, x>, true, false, false, false, true, true, false>(flash::Flash_fwd_params)
    attention yes fp16 64x256 splitk causal whole
void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4, false, false, cutlass::half_t>, 4, 1, true>(x)
    helper no helper
void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<pytorch_flash::Flash_bwd_kernel_traits<64, 64, 128, 8, 2, 4, 4, false, true, cutlass::half_t, x>, true, true, false, false, true, true>(y)
    attention yes fp16 64x128 causal whole
void pytorch_flash::flash_bwd_dot_do_o_kernel<true, pytorch_flash::Flash_bwd_kernel_traits<64, 64, 128, 8> >(x)
    helper no helper
void pytorch_flash::flash_bwd_convert_dq_kernel<pytorch_flash::Flash_bwd_kernel_traits<64, 64, 128, 8> >(x)
    helper no helper
void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, cute::tuple<cute::C<128>, cute::C<176>, cute::C<128> >, 128, cutlass::bfloat16_t, float, cutlass::arch::Sm90, true, false, false>, x> > >(y)
    attention yes bf16 sm9.0 persistent causal whole | FlashAttention 3 forward
void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<128>>, cutlass::bfloat16_t, float, cutlass::arch::Sm90, true>>(x)
    helper no helper
void flash::compute_attn_ws<Flash_fwd_kernel_traits<192, 128, 128, 12, 2, false, 1, cutlass::bfloat16_t, 128>, true, flash::CausalScheduler>(x)
    attention yes bf16 sm9.0 persistent causal
fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)
    attention yes bf16 64x128 sm8.0
fmha_cutlassF_f32_aligned_64x64_rf_sm80(x)
    attention yes tf32 64x64 sm8.0
fmha_cutlassF_f32_aligned_32x128_gmem_sm75(x)
    attention no fp32 32x128 sm7.5
fmha_cutlassB_f16_aligned_64x64_k64_dropout_sm80(x)
    attention yes fp16 64x64 sm8.0
void attention_kernel_batched_impl<AttentionKernel<cutlass::half_t, cutlass::arch::Sm80, true, 64, 64, true> >(x)
    attention yes fp16 sm8.0
fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext
    attention yes fp8 128x128 sm10.0 persistent causal whole
fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvSlidingOrChunkedCausalP16VarSeqQ128Kv128PersistentContext
    attention yes fp8 128x128 sm10.0 persistent causal windowed
void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4, false, false, cutlass::half_t, x>, false, true, false, false, true, true, false>(flash::Flash_fwd_params)
    attention yes fp16 64x256 splitk full windowed
fmha_v2_flash_attention_bf16_64_128_S_q_paged_kv_64_causal_sm90_kernel_nl_tiled
    attention yes bf16 sm9.0 persistent causal
cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0
    attention yes fp16 sm9.0 persistent
cudnn_generated_fort_native_sdpa_sm80_flash_bprop_bf16_knob_32_64x64x64_kernel0_0
    attention yes bf16 sm8.0
void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0, 1, 128, 256, false, 4, 1, x>(y)
    attention yes bf16
void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16, __hip_bfloat16, 128, 128, 256, 3, false>(x)
    helper no helper
void vllm::paged_attention_v1_kernel<unsigned short, unsigned short, 128, 16, 128>(x)
    attention no
void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<__nv_bfloat16>>(x)
    attention yes bf16
void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, __half>(x)
    attention no fp16
_ZN5aiter21fmha_fwd_hd128_bf16_cE
    attention yes bf16
void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVS<x>>>(y)
    attention yes
_ZN5aiter39mla_dec_stage1_bf16_a16w16_subQ16_mqa16E
    attention yes bf16
_ZN5aiter36mla_a8w8_qh16_qseqlen1_gqaratio16_psE
    attention yes
_ZN5aiter32pa_bf16_pertokenFp8_gqa16_2tg_4wE
    attention yes bf16
_ZN5aiter42PA_A16W8_BLK1024_1TG_4W_16mx1_64nx4_MTP_PSE
    attention yes
void aiter::mla_reduce_v1<128, 512>(float*)
    helper no helper
attn_fwd
    attention ? triton
kernel_unified_attention_3d
    attention ? triton
reduce_segments
    helper no triton helper
triton_tem_fused_flex_attention_1
    attention ? triton
",
    );
}
