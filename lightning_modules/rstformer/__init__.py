"""RSTformer: distributions of RST structure inside Longformer attention (Pu et al., ACL 2023, arXiv 2305.16784).

`module.py` is the LightningModule, `led.py` the Longformer encoder-decoder, `injection.py` the ways in which a labeled
discourse distribution (LDD) enters attention; `chunked_attention.py`, `dense_attention.py` and `fused_attention.py` are
implementations of windowed attention, `lora.py` has RST-LoRA, `attention_maps.py` weights for drawing.
"""
