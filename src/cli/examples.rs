//! What `--help` ends with: examples, from the most common one on.

pub(super) const ADVISE: &str = "\
Examples:
  pyprof-advise net.sqlite                          advice, with the GPU the profile names
  pyprof-advise net.sqlite --for-pr -o pr.md        into a file that fits a pull request
  pyprof-advise net.sqlite --format html -o a.html  a page with charts and a table of all work
  pyprof-advise net.sqlite --gpu v100               as if on a V100
  pyprof-advise net.pt.trace.json.gz                the same from a trace of torch.profiler
  pyprof-advise rank*.json.gz -o job.md             the ranks of one job, in one report
  pyprof-advise diff before.sqlite after.sqlite     what a change did: slower, faster, fixed, new
  pyprof-advise net.sqlite --rules my-rules/        your own rules as well
  pyprof-advise net.sqlite --why precision/amp-off  why a rule fired, or did not
  pyprof-advise rules explain precision/amp-off     what a rule looks for and advises
  pyprof-advise net.sqlite --costs my-costs.toml    with what your own operators cost
  pyprof-advise gpus list                           names for --gpu
  pyprof-advise prof net.sqlite --csv               PyProf's columns, one row per kernel
  pyprof-advise scrub net.sqlite safe.sqlite        a copy without secrets, names and home folders
  pyprof-advise net.sqlite --fail-on error          status 1 when there is an error
  pyprof-advise net.sqlite --baseline main.json     only what is new since that report
  pyprof-advise --dump-config > pyprof-advise.toml  a file for --config to start from

A profile comes from torch.profiler (prof.export_chrome_trace), Nsight Systems or nvprof:
  nsys profile -t cuda,nvtx -o net python train.py
  nsys export --type sqlite -o net.sqlite net.nsys-rep

Exit status: 0 a report was written, whatever it says; 1 a gate failed (--fail-on, here and of
diff, and test and check of rules and costs); 2 nothing could be judged, or the command line was wrong.";

pub(super) const DIFF: &str = "\
Examples:
  pyprof-advise diff before.sqlite after.sqlite                  what the change did
  pyprof-advise diff main.json after.sqlite -o diff.md           a report kept from main, and a profile
  pyprof-advise diff before/ after/                              two jobs, a folder of profiles each
  pyprof-advise diff h100.json.gz mi300.json.gz --format html -o diff.html
  pyprof-advise diff main.json pr.sqlite --fail-on regression=3%

Exit status: 0 the comparison was written, whatever it says; 1 the gate of --fail-on failed;
2 nothing could be compared, or the command line was wrong.";

pub(super) const EXPORT: &str = "\
Examples:
  pyprof-advise export rank*.json.gz -o sites.csv      a row per rank, layer, operator and shapes
  pyprof-advise export traces/ -o sites.csv            every profile of a folder
  pyprof-advise export reports/ -o sites.csv           from reports written with --format json
  pyprof-advise export net.sqlite | head               CSV on standard output";

pub(super) const RULES: &str = "\
Examples:
  pyprof-advise rules list                             every rule with its title
  pyprof-advise rules list --select precision          those of a category
  pyprof-advise rules explain precision/amp-off        what it looks for and advises
  pyprof-advise rules new fusion/my-idea               a file to start from, in rules/
  pyprof-advise rules check rules/ && pyprof-advise rules test rules/";

pub(super) const COSTS: &str = "\
Examples:
  pyprof-advise costs explain aten::addmm              how FLOPs and bytes are counted
  pyprof-advise costs list attention                   operators with it in their name
  pyprof-advise costs test my-costs.toml               your own, held to their examples";

pub(super) const GPUS: &str = "\
Examples:
  pyprof-advise gpus list                              names for --gpu
  pyprof-advise gpus show a100 > my-board.toml         a file for --gpu to start from";

pub(super) const SCHEMA: &str = "\
Examples:
  pyprof-advise schema report > report.json            of what --format json prints
  pyprof-advise schema diff > diff.json                of what diff --format json prints
  pyprof-advise schema config > config.json            of the file --config reads, for your editor";

pub(super) const COMPLETIONS: &str = "\
Examples:
  pyprof-advise completions bash > ~/.local/share/bash-completion/completions/pyprof-advise
  pyprof-advise completions zsh > ~/.zfunc/_pyprof-advise
  pyprof-advise completions fish > ~/.config/fish/completions/pyprof-advise.fish";

pub(super) const MAN: &str = "\
Examples:
  pyprof-advise man | man -l -                         read it
  pyprof-advise man > /usr/local/share/man/man1/pyprof-advise.1
  pyprof-advise man rules list | man -l -              of a command";

pub(super) const PARSE: &str = "\
Examples:
  pyprof-advise parse net.sqlite > net.dict            for prof, and for scripts made for PyProf
  pyprof-advise parse net.sqlite --format jsonl        a JSON object per kernel";

pub(super) const PROF: &str = "\
Examples:
  pyprof-advise prof net.sqlite                        PyProf's columns
  pyprof-advise prof net.dict -c idx,op,kernel,sil,flops,bytes --csv
  pyprof-advise parse net.sqlite | pyprof-advise prof";

pub(super) const RULES_LIST: &str = "\
Examples:
  pyprof-advise rules list
  pyprof-advise rules list --select host,copies --ignore host/gpu-idle
  pyprof-advise rules list --rules my-rules/";

pub(super) const RULES_EXPLAIN: &str = "\
Examples:
  pyprof-advise rules explain tensor-cores/gemm-unaligned
  pyprof-advise rules explain user/long-softmax --rules long-softmax.toml";

pub(super) const RULES_FACTS: &str = "\
Examples:
  pyprof-advise rules facts
  pyprof-advise rules facts share";

pub(super) const RULES_CHECK: &str = "\
Examples:
  pyprof-advise rules check long-softmax.toml
  pyprof-advise rules check my-rules/";

pub(super) const RULES_TEST: &str = "\
Examples:
  pyprof-advise rules test                             the built-in rules
  pyprof-advise rules test my-rules/ --verbose         yours, every test by name";

pub(super) const RULES_SCHEMA: &str = "\
Examples:
  pyprof-advise rules schema > rule.json
  pyprof-advise rules schema cost > cost.json";

pub(super) const RULES_NEW: &str = "\
Examples:
  pyprof-advise rules new fusion/my-idea               writes rules/fusion/my-idea.toml
  pyprof-advise rules new fusion/my-idea --folder ci";

pub(super) const COSTS_LIST: &str = "\
Examples:
  pyprof-advise costs list
  pyprof-advise costs list norm --costs my-costs.toml";

pub(super) const COSTS_EXPLAIN: &str = "\
Examples:
  pyprof-advise costs explain aten::addmm
  pyprof-advise costs explain my_lib::fused_mlp --costs my-costs.toml";

pub(super) const COSTS_FUNCTIONS: &str = "\
Examples:
  pyprof-advise costs functions";

pub(super) const COSTS_CHECK: &str = "\
Examples:
  pyprof-advise costs check my-costs.toml";

pub(super) const COSTS_TEST: &str = "\
Examples:
  pyprof-advise costs test my-costs.toml
  pyprof-advise costs test my-costs.toml --verbose     every test by name";

pub(super) const GPUS_LIST: &str = "\
Examples:
  pyprof-advise gpus list";

pub(super) const GPUS_SHOW: &str = "\
Examples:
  pyprof-advise gpus show h100 > my-board.toml
  pyprof-advise gpus show my-board.toml                how your file is read";
