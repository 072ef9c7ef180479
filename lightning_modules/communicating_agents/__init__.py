"""Deep communicating agents (Celikyilmaz et al., NAACL 2018, arXiv 1803.10357).

`module.py` is the LightningModule, `network.py` joins the parts: `encoder.py` (local and contextual encoders of each
agent), `messages.py` (what agents send each other), `decoder.py` (word and agent attention). Decoding and copying are
shared with the pointer-generator: `lightning_modules/copying_summarizer.py` and `networks/copying.py`.
"""
