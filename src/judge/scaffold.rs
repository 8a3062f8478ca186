//! `rules new`: a first rule file that loads, passes its tests, and shows what goes where.

/// The text of a new rule file. It is valid as it stands, so that changing it is all there is to do.
pub fn scaffold(id: &str) -> String {
    let mut text = String::from("# ");
    text.push_str(id);
    text.push_str(REST);
    text
}

const REST: &str = r#": the path gives the id; do not change it later.
# `pyprof-advise rules facts` lists the facts, `rules check` and `rules test` check this file.

# The problem, on one line.
title      = "A matrix product is far from what the GPU can do"
# How serious it is (note, warning, error), and how certain the diagnosis is (low, medium, high).
severity   = "warning"
confidence = "medium"
# What is examined: run, step, layer, site, chain, kernel, copy, gap or rank.
for_each   = "site"
# The condition, in the Common Expression Language (CEL): which of them are selected.
when       = '''site.family == "gemm" && slowdown > params.tolerated'''
# All selected sites are one finding; without this line, each place is a finding.
group_by   = "run"
# A condition on the whole finding: found.count, found.calls, found.time_ns, found.gpu_share, ...
require    = '''found.gpu_share >= params.min_share'''
# Upper end of the saving of one site, in nanoseconds.
saving_ns  = '''site.time_ns - site.reachable_ns'''

# The problem with its numbers, why it costs time, and what to do.
message    = "{{ found.count }} matrix product{{ 's' if found.count != 1 }} take{{ 's' if found.count == 1 }} {{ found.gpu_share | percent }} of GPU time; the slowest takes {{ slowdown | times }} its reachable time."
why        = "The product keeps neither the arithmetic units nor the memory busy."
fix        = """Say what to change, in code:

```python
layer = torch.nn.Linear(in_features, out_features)
```"""
references = ["https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html"]

# Thresholds, each with its reason. Users change them with --set.
[params]
tolerated = { value = 2.0, doc = "multiple of the reachable time up to which a product is fast enough" }
min_share = { value = 0.02, doc = "share of GPU time below which a change is not worthwhile" }

# Names for parts of expressions; conditions, templates and other lets can use them.
[let]
slowdown = '''site.time_ns / site.reachable_ns'''

# Tests: at least one fires, and at least one is silent.
[[test]]
name  = "three times the reachable time"
facts = { "site.family" = "gemm", "site.time_ns" = 3e6, "site.reachable_ns" = 1e6, "found.gpu_share" = 0.3 }
fires = "1 matrix product takes 30 % of GPU time; the slowest takes 3.00x its reachable time."
saving_ns = 2e6

[[test]]
name   = "as fast as it can be"
facts  = { "site.family" = "gemm", "site.time_ns" = 1.1e6, "site.reachable_ns" = 1e6, "found.gpu_share" = 0.3 }
silent = true

[[test]]
name    = "no shapes in the profile"
facts   = { "site.family" = "gemm", "site.time_ns" = 1.1e6 }
skipped = ["site.reachable_ns"]
"#;
