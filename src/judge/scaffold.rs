//! `rules new`: a first rule file that loads, passes its tests, and shows what goes where.

/// The text of a new rule file. It is valid as it stands, so that changing it is all there is to do.
pub fn scaffold(id: &str) -> String {
    let mut text = String::from("# ");
    text.push_str(id);
    text.push_str(REST);
    text
}

const REST: &str = r#": the path is the id, and permanent.
# `pyprof-advise rules facts` lists the facts, `rules check` and `rules test` look this file over.

# One line that states the problem.
title      = "A matrix product is far from what the GPU can do"
# How bad (note, warning, error), and how sure (low, medium, high). How much is the saving's business.
severity   = "warning"
confidence = "medium"
# What is examined: run, step, layer, site, chain, kernel, copy, gap or rank.
for_each   = "site"
# The condition, in the Common Expression Language. It picks members.
when       = '''site.family == "gemm" && slowdown > params.tolerated'''
# All it picks is one finding; leave it out for one finding per place.
group_by   = "run"
# Whether what was found is worth a word: found.count, found.calls, found.time_ns, found.gpu_share, ...
require    = '''found.gpu_share >= params.min_share'''
# Nanoseconds saved, upper end.
saving_ns  = '''site.time_ns - site.reachable_ns'''

# What is the matter, with its numbers; why it costs time; what to do about it.
message    = "{{ found.count }} matrix products take {{ found.gpu_share | percent }} of GPU time; the worst takes {{ slowdown | times }} of the time it could."
why        = "The product neither keeps the arithmetic units nor the memory busy."
fix        = """Say what to change, in code:

```python
layer = torch.nn.Linear(in_features, out_features)
```"""
references = ["https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html"]

# Every threshold has a name, a reason, and can be changed with --set.
[params]
tolerated = { value = 2.0, doc = "times the reachable time that is not yet worth a word" }
min_share = { value = 0.02, doc = "share of GPU time below which it is not worth a change" }

# Names for parts of expressions; they can be used in each other and in the sentences.
[let]
slowdown = '''site.time_ns / site.reachable_ns'''

# Examples are the rule's tests: at least one fires, and at least one is silent.
[[test]]
name  = "three times slower than it could be"
facts = { "site.family" = "gemm", "site.time_ns" = 3e6, "site.reachable_ns" = 1e6, "found.gpu_share" = 0.3 }
fires = "1 matrix products take 30 % of GPU time; the worst takes 3.00x of the time it could."
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
