"""The rows of the list of cases: patterns with the shapes that real models have them in.

`primary` marks what the table in bench/results/README.md shows, `ci` what every test run measures once.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One row: it becomes a case for each of its element types."""

    pattern: str
    shape: str
    model: str
    tags: str = ""
    dtypes: str = "f32"
    layout: str = ""


_BOTH = "f32 bf16"
_ALL = "f32 bf16 f16"

_RESNET = (
    Row("conv_bias_relu", "n=1,c=3,h=224,w=224,k=64,r=7,stride=2", "ResNet50, stem", "primary"),
    Row("conv_bias_relu", "n=1,c=64,h=56,w=56,k=64,r=3", "ResNet50, stage 1", "primary", _ALL),
    Row("conv_bias_relu", "n=8,c=64,h=56,w=56,k=64,r=3", "ResNet50, stage 1, batch 8", dtypes=_BOTH),
    Row("conv_bias_relu", "n=1,c=64,h=56,w=56,k=64,r=3", "ResNet50, stage 1", layout="channels-first"),
    Row("conv_bias_relu", "n=1,c=256,h=56,w=56,k=128,r=1", "ResNet50, stage 2"),
    Row("conv_bias_relu", "n=1,c=128,h=56,w=56,k=128,r=3,stride=2", "ResNet50, stage 2"),
    Row("conv_bias_relu", "n=1,c=256,h=14,w=14,k=256,r=3", "ResNet50, stage 3"),
    Row("conv_bias_relu", "n=1,c=512,h=7,w=7,k=512,r=3", "ResNet50, stage 4"),
    Row("conv_bias_residual_relu", "n=1,c=64,h=56,w=56,k=256,r=1", "ResNet50, end of a block", "primary", _BOTH),
    Row("conv_bias_residual_relu", "n=1,c=512,h=7,w=7,k=2048,r=1", "ResNet50, end of a block"),
    Row("conv_scale_bias_relu", "n=1,c=64,h=56,w=56,k=64,r=3", "ResNet50, batch norm behind"),
    Row("conv_mean_scale_bias_relu", "n=1,c=256,h=14,w=14,k=256,r=3", "ResNet50, batch norm spelled out"),
    Row("max_pool", "n=1,c=64,h=112,w=112,r=3,stride=2", "ResNet50, stem", "primary", _BOTH),
    Row("avg_pool", "n=1,c=128,h=56,w=56,r=2", "DenseNet121, transition", dtypes=_BOTH),
    Row("matmul_bias", "m=1,k=2048,n=1000", "ResNet50, head", dtypes=_BOTH),
)

_MOBILE = (
    Row("depthwise_conv_bias_clip", "n=1,c=96,h=112,w=112,r=3,stride=2", "MobileNetV2, block 1"),
    Row("depthwise_conv_bias_clip", "n=1,c=144,h=56,w=56,r=3", "MobileNetV2, block 2", "primary", _BOTH),
    Row("depthwise_conv_bias_clip", "n=1,c=960,h=7,w=7,r=3", "MobileNetV2, block 16"),
    Row("conv_bias_clip", "n=1,c=24,h=56,w=56,k=144,r=1", "MobileNetV2, expansion", "primary"),
    Row("conv_bias_residual", "n=1,c=144,h=56,w=56,k=24,r=1", "MobileNetV2, projection"),
    Row("depthwise_conv_bias_swish", "n=1,c=240,h=28,w=28,r=5", "EfficientNetB0, block 3", "primary"),
    Row("conv_bias_swish", "n=1,c=16,h=112,w=112,k=96,r=1", "EfficientNetB0, expansion"),
    Row("conv_bias_sigmoid_gate", "n=1,c=240,h=1,w=1,k=240,r=1", "EfficientNetB0, squeeze and excite"),
    Row("conv_bias_hard_swish", "n=1,c=16,h=112,w=112,k=64,r=1", "MobileNetV3, expansion"),
    Row("conv_bias_hard_sigmoid", "n=1,c=24,h=28,w=28,k=72,r=1", "MobileNetV3, squeeze and excite"),
    Row("depthwise_conv_bias", "n=1,c=96,h=56,w=56,r=7", "ConvNeXtTiny, stage 1", "primary", _BOTH),
    Row("conv_bias", "n=1,c=96,h=56,w=56,k=192,r=2,stride=2", "ConvNeXtTiny, downsampling"),
    Row("matmul_bias_gelu_erf", "m=3136,k=96,n=384", "ConvNeXtTiny, stage 1", dtypes=_BOTH),
    Row("matmul_bias_scale_residual", "m=3136,k=384,n=96", "ConvNeXtTiny, layer scale"),
    Row("conv_bias_mish", "n=1,c=64,h=52,w=52,k=128,r=3", "YOLOv4"),
    Row("conv_bias_leaky_relu", "n=1,c=128,h=52,w=52,k=64,r=1", "YOLOv3"),
    Row("conv_bias_elu", "n=1,c=64,h=28,w=28,k=64,r=3", "networks with ELU"),
    Row("conv_bias_relu", "n=1,c=128,h=28,w=28,k=128,r=3,groups=32", "ResNeXt50"),
    Row("conv_bias_relu", "n=1,c=64,h=28,w=28,k=64,r=3,dilation=2", "DeepLab"),
)

_TEXT = (
    Row("matmul_bias", "m=128,k=768,n=768", "BERT-base, projection", "primary", _ALL),
    Row("matmul_bias_gelu_erf", "m=128,k=768,n=3072", "BERT-base, first dense layer", "primary", _BOTH),
    Row("matmul_bias_residual", "m=128,k=3072,n=768", "BERT-base, second dense layer", "primary", _BOTH),
    Row("matmul", "b=12,m=128,k=64,n=128,transposed=1", "BERT-base, attention scores", dtypes=_BOTH),
    Row("matmul", "b=12,m=128,k=128,n=64", "BERT-base, attention values"),
    Row("matmul_bias_gelu_tanh", "m=512,k=768,n=3072", "GPT-2, prefill of 512 tokens", "primary", _BOTH),
    Row("matmul_bias", "m=1,k=768,n=2304", "GPT-2, decoding one token", "primary", _BOTH),
    Row("matmul_bias_gelu_tanh", "m=1,k=768,n=3072", "GPT-2, decoding one token", dtypes=_BOTH),
    Row("matmul", "m=1,k=768,n=50257", "GPT-2, decoding one token, vocabulary", dtypes=_BOTH),
    Row("attention", "n=1,heads=12,q=1,kv=512,d=64", "GPT-2, decoding one token"),
    Row("matmul_bias_gelu_erf", "m=197,k=768,n=3072", "ViT-B/16", dtypes=_BOTH),
    Row("conv_bias", "n=1,c=3,h=224,w=224,k=768,r=16,stride=16", "ViT-B/16, patches"),
    Row("matmul_swish_gate", "m=32,k=1024,n=2816", "gated blocks of language models", dtypes=_BOTH),
    Row("matmul_bias_tanh", "m=1,k=768,n=768", "BERT-base, pooler"),
    Row("matmul_relu_square", "m=128,k=768,n=3072", "Primer"),
    Row("conv1d_bias_gelu_erf", "n=1,c=80,w=3000,k=512,r=3", "Whisper base, first layer", "primary"),
)

_DIFFUSION = (
    Row("conv_bias", "n=2,c=320,h=64,w=64,k=320,r=3", "Stable Diffusion UNet, 64²", "primary", _BOTH),
    Row("conv_bias_residual", "n=2,c=640,h=32,w=32,k=640,r=3", "Stable Diffusion UNet, 32²", dtypes=_BOTH),
    Row("conv_bias", "n=2,c=2560,h=8,w=8,k=1280,r=3", "Stable Diffusion UNet, 8²"),
    Row("matmul_bias_residual", "m=8192,k=320,n=320", "Stable Diffusion UNet, projection", "primary", _BOTH),
    Row("matmul_bias_swish", "m=2,k=320,n=1280", "Stable Diffusion UNet, time embedding"),
    Row("attention", "n=2,heads=8,q=4096,kv=77,d=40", "Stable Diffusion UNet, cross attention"),
    Row("conv_bias", "n=1,c=128,h=256,w=256,k=128,r=3", "Stable Diffusion VAE"),
    Row("conv_transpose_bias_relu", "n=1,c=256,h=28,w=28,k=128,r=4", "U-Net, upsampling", "primary", _BOTH),
    Row("conv_transpose_bias_tanh", "n=1,c=64,h=32,w=32,k=3,r=4", "DCGAN, last layer"),
    Row("conv3d_bias_relu", "n=1,c=16,d=16,h=32,w=32,k=32,r=3", "3-D ResNet", "primary", _BOTH),
)

_TRAINING = (
    Row("conv_weights_gradient", "n=8,c=64,h=56,w=56,k=64,r=3", "ResNet50, training", "primary"),
    Row("conv_weights_gradient", "n=8,c=64,h=56,w=56,k=128,r=3,stride=2", "ResNet50, training"),
    Row("conv_weights_gradient", "n=8,c=32,h=28,w=28,k=32,r=3,groups=32", "MobileNetV2, training", "primary"),
    Row("conv_input_gradient", "n=8,c=64,h=56,w=56,k=64,r=3", "ResNet50, training"),
    Row("conv_input_gradient", "n=8,c=64,h=56,w=56,k=128,r=3,stride=2", "ResNet50, training", "primary"),
)

_SCIENCE = (
    Row("cholesky", "n=1024", "Gaussian processes", "primary", "f32 f64"),
    Row("cholesky", "n=2048", "Gaussian processes"),
    Row("cholesky", "b=64,n=64", "Gaussian processes, many small ones"),
    Row("triangular_solve", "n=1024,m=1024", "Gaussian processes", "primary", "f32 f64"),
    Row("triangular_solve", "n=1024,m=1", "Gaussian processes, one right-hand side"),
    Row("triangular_product", "n=1024,m=1024", "Gaussian processes, gradients", "", "f32 f64"),
    Row("product", "n=512,m=512", "quantum chemistry, optics", "", "c64"),
    Row("solve", "n=1024,m=16", "linear systems", "", "f32 f64"),
    Row("lu", "n=1024", "linear systems, determinants", "", "f32 f64"),
    Row("qr", "n=512", "least squares"),
    Row("eigh", "n=256", "principal components"),
    Row("svd", "n=256", "principal components"),
    Row("fft", "b=64,n=4096", "signals", "primary", "c64"),
    Row("rfft", "b=64,n=4096", "signals"),
    Row("fft2", "h=512,w=512", "images, optics", "", "c64"),
    Row("matmul_square_linear_exp", "m=256,k=32,n=256", "Gaussian processes, kernel matrix"),
)

_ROWS = (
    Row("softmax", "m=1536,n=128", "BERT-base, attention", dtypes=_BOTH),
    Row("log_softmax", "m=128,n=1000", "a classifier's loss", dtypes=_BOTH),
    Row("argmax", "m=1,n=128256", "Llama 3, greedy decoding of one token", dtypes=_BOTH),
    Row("argmin", "m=1024,n=512", "the nearest of the codes of a vector quantization", dtypes=_BOTH),
    Row("argmax", "m=8,n=32000", "Llama 2, greedy decoding of eight sequences", dtypes=_BOTH),
    Row("sort", "m=1,n=32000", "Llama 2, the least likely tokens of a nucleus"),
    Row("argsort", "m=1,n=128256", "Llama 3, top-p sampling of one token"),
    Row("top_k", "m=1,n=128256", "Llama 3, top-k sampling of one token"),
    Row("cumsum", "m=1,n=128256", "Llama 3, top-p sampling of one token"),
    Row("cumprod", "m=4096,n=128", "volume rendering, transmittance along rays"),
    Row("cummax", "m=512,n=1024", "running maxima of series"),
    Row("cummin", "m=512,n=1024", "running minima of series"),
    Row("cumlogsumexp", "m=512,n=1024", "survival analysis, partial likelihoods"),
    Row("layer_norm", "m=128,n=768", "BERT-base", dtypes=_BOTH),
    Row("rms_norm", "m=512,n=2048", "language models", dtypes=_BOTH),
)

# Entries of the table that no common model has in a shape of its own: on a dense layer of BERT-base.
_DENSE = "m=128,k=768,n=768"
_OTHERS = tuple(
    Row(f"matmul_{steps}", _DENSE, "a dense layer of BERT-base's size")
    for steps in (
        "relu", "abs", "sqrt", "log", "pow", "exp", "round", "softplus", "linear", "difference", "deviation",
        "quotient", "maximum", "minimum",
    )
)  # fmt: skip

_ATTENTION = tuple(
    Row("attention", f"n={batch},{shape}", model, "attention", _BOTH)
    for shape, model in (
        ("heads=12,q=128,kv=128,d=64", "BERT-base, 128 tokens"),
        ("heads=12,q=197,kv=197,d=64", "ViT-B/16, 224²"),
        ("heads=12,q=1024,kv=1024,d=64", "as large as GPT-2's, 1024 tokens"),
        ("heads=12,q=1024,kv=1024,d=64,causal=1", "GPT-2, 1024 tokens"),
        ("heads=8,q=4096,kv=4096,d=40", "Stable Diffusion UNet, 64², self attention"),
        ("heads=8,q=4096,kv=77,d=40", "Stable Diffusion UNet, 64², cross attention"),
        ("heads=8,q=1024,kv=1024,d=80", "Stable Diffusion UNet, 32², self attention"),
    )
    for batch in (1, 8)
)

_QUICK = (
    Row("conv_bias_relu", "n=1,c=8,h=14,w=14,k=16,r=3", "small", "ci"),
    Row("depthwise_conv_bias_clip", "n=1,c=32,h=14,w=14,r=3", "small", "ci"),
    Row("matmul_bias_gelu_tanh", "m=32,k=64,n=64", "small", "ci", _BOTH),
    Row("cholesky", "n=64", "small", "ci"),
)

ROWS: tuple[Row, ...] = (
    *_RESNET, *_MOBILE, *_TEXT, *_DIFFUSION, *_TRAINING, *_SCIENCE, *_ROWS, *_OTHERS, *_ATTENTION, *_QUICK,
)  # fmt: skip
