"""RST parsing: from text to EDUs, trees and labelled discourse distributions (LDDs).

`segmenter.py` and `parser.py` are LightningModules, with `encoder_module.py` as their base class. `boundary_network.py`
finds EDU boundaries. `span_scorer.py` scores spans, `chart.py` holds the inside-outside recursions,
`discourse_charts.py` the labelled chart of the parser, `ldd.py` the distributions that RSTformer reads. `isanlp.py` and
`right_branching.py` are other parsers.
"""
