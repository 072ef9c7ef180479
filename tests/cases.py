"""Every model of the suite, small enough for a test. A new paper is one more file of cases."""

import cases_communicating_agents
import cases_extractive
import cases_graphsum
import cases_pegasus
import cases_pointer_generator
import cases_rstformer
from case import Case

CASES: list[Case] = [
    *cases_communicating_agents.CASES,
    *cases_extractive.CASES,
    *cases_graphsum.CASES,
    *cases_pegasus.CASES,
    *cases_pointer_generator.CASES,
    *cases_rstformer.CASES,
]
