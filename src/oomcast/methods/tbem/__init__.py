"""Testing-based estimation: what real runs hold beyond the static estimate, learnt from an orthogonal array of them.

Why: a capture tells what a network's tensors need (SGV, `static_figures`), but not what a framework adds on the machine
where it runs. A campaign finds that out with few runs. A person names a template of networks and the factors to vary
(`campaign_file`, `templates`); an orthogonal array chooses the cases (`arrays`, `plans`), a specification in the form
of SOFL rejects those that cannot be built (`specification`), `oomcast.methods.measure` runs the rest, and a polynomial
of few terms learns the Gap between measured and static memory (`gap`, `polynomial`). The estimator `tbem` then answers
for any network within the campaign's levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomcast.lazy import lazy_names

if TYPE_CHECKING:
    from .answers import LearntTotal, buildable, device_of_runs, environment_in_words, static_answer, with_learnt_total
    from .campaign import (
        ProposedFactor,
        ScreenedFactors,
        measure_campaign,
        most_telling,
        propose_factors,
        screen,
    )
    from .campaign_file import Campaign, CampaignLimits, read_campaign
    from .campaign_plan import CampaignPlan, RejectedCase, campaign_cases, case_spec, next_campaign_case, plan_campaign
    from .factors import Case, Effect, Factor, Value, encode, main_effects
    from .gap import FEATURES, Gap, GapRow, Mape, fit_campaign, fit_gap, read_gap, refit, write_gap
    from .page import campaign_html
    from .plans import METHODS, Cost, Method, Plan, make_plan, next_case
    from .polynomial import PolynomialRegression, Term
    from .report import duration, percent, render_gap
    from .static_figures import (
        CPU,
        TRACE_FEATURES,
        VIRTUAL_GPU,
        StaticValue,
        case_trace,
        live_peak,
        static_value,
        trace_features,
    )
    from .template_jobs import TEMPLATE_PREFIX, is_template_job, seed_job, template_job
    from .templates import TEMPLATES, Parameter, Template, complete, count_parameters

__all__ = [
    "CPU",
    "FEATURES",
    "METHODS",
    "TEMPLATES",
    "TEMPLATE_PREFIX",
    "TRACE_FEATURES",
    "VIRTUAL_GPU",
    "Campaign",
    "CampaignLimits",
    "CampaignPlan",
    "Case",
    "Cost",
    "Effect",
    "Factor",
    "Gap",
    "GapRow",
    "LearntTotal",
    "Mape",
    "Method",
    "Parameter",
    "Plan",
    "PolynomialRegression",
    "ProposedFactor",
    "RejectedCase",
    "ScreenedFactors",
    "StaticValue",
    "Template",
    "Term",
    "Value",
    "buildable",
    "campaign_cases",
    "campaign_html",
    "case_spec",
    "case_trace",
    "complete",
    "count_parameters",
    "device_of_runs",
    "duration",
    "encode",
    "environment_in_words",
    "fit_campaign",
    "fit_gap",
    "is_template_job",
    "live_peak",
    "main_effects",
    "make_plan",
    "measure_campaign",
    "most_telling",
    "next_campaign_case",
    "next_case",
    "percent",
    "plan_campaign",
    "propose_factors",
    "read_campaign",
    "read_gap",
    "refit",
    "render_gap",
    "screen",
    "seed_job",
    "static_answer",
    "static_value",
    "template_job",
    "trace_features",
    "with_learnt_total",
    "write_gap",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".answers": (
            "LearntTotal",
            "buildable",
            "device_of_runs",
            "environment_in_words",
            "static_answer",
            "with_learnt_total",
        ),
        ".campaign": (
            "ProposedFactor",
            "ScreenedFactors",
            "measure_campaign",
            "most_telling",
            "propose_factors",
            "screen",
        ),
        ".campaign_file": ("Campaign", "CampaignLimits", "read_campaign"),
        ".campaign_plan": (
            "CampaignPlan",
            "RejectedCase",
            "campaign_cases",
            "case_spec",
            "next_campaign_case",
            "plan_campaign",
        ),
        ".factors": ("Case", "Effect", "Factor", "Value", "encode", "main_effects"),
        ".gap": ("FEATURES", "Gap", "GapRow", "Mape", "fit_campaign", "fit_gap", "read_gap", "refit", "write_gap"),
        ".plans": ("METHODS", "Cost", "Method", "Plan", "make_plan", "next_case"),
        ".polynomial": ("PolynomialRegression", "Term"),
        ".page": ("campaign_html",),
        ".report": ("duration", "percent", "render_gap"),
        ".static_figures": (
            "CPU",
            "TRACE_FEATURES",
            "VIRTUAL_GPU",
            "StaticValue",
            "case_trace",
            "live_peak",
            "static_value",
            "trace_features",
        ),
        ".template_jobs": ("TEMPLATE_PREFIX", "is_template_job", "seed_job", "template_job"),
        ".templates": ("TEMPLATES", "Parameter", "Template", "complete", "count_parameters"),
    },
    extra="campaign",
)
