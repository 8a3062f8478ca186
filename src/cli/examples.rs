//! The examples at the end of `--help`, most common first.

/// Printed without arguments.
pub(super) const WELCOME: &str = "\
pyprof-advise reads a GPU profile of a PyTorch program and reports what to
change first.

The shortest way: run a program, record some of its steps, get advice.

     pyprof-advise run -- python train.py

Or step by step:

1. Record a few training steps, after ten or more that warm up:

     with torch.profiler.profile(record_shapes=True) as prof:
         for _ in range(3):
             train_step()
         torch.cuda.synchronize()
     prof.export_chrome_trace(\"trace.json.gz\")

   or: nsys profile -t cuda,nvtx -o net python train.py
       nsys export --type sqlite -o net.sqlite net.nsys-rep

2. Get advice:

     pyprof-advise trace.json.gz                   in the terminal
     pyprof-advise trace.json.gz -o report.html    a page with a timeline
     pyprof-advise trace.json.gz -o report.md      for a pull request

3. Change one thing, record again, and compare:

     pyprof-advise diff before.json.gz after.json.gz

`pyprof-advise --help` lists all commands and options.
";

pub(super) const ADVISE: &str = "\
Examples:
  pyprof-advise run -- python train.py              run a program, record some steps, advise
  pyprof-advise net.sqlite                          advice for the GPU that the profile names
  pyprof-advise net.sqlite --for-pr -o pr.md        a file that fits a comment on GitHub
  pyprof-advise net.sqlite -o report.html           a page with a timeline and a table of all work
  pyprof-advise net.sqlite --gpu v100               as if on a V100
  pyprof-advise net.pt.trace.json.gz                the same, from a torch.profiler trace
  pyprof-advise rank*.json.gz -o job.md             one report of all ranks of a job
  pyprof-advise diff before.sqlite after.sqlite     the effect of a change
  pyprof-advise try -- python train.py              apply advice in fresh runs, and measure it
  pyprof-advise net.sqlite --source .               with the code behind each finding
  pyprof-advise net.sqlite --rules my-rules/        with your own rules too
  pyprof-advise net.sqlite --why precision/amp-off  why a rule fired, or did not fire
  pyprof-advise rules explain precision/amp-off     what a rule detects and advises
  pyprof-advise net.sqlite --costs my-costs.toml    with costs of your own operators
  pyprof-advise gpus list                           names for --gpu
  pyprof-advise prof net.sqlite --csv               PyProf's columns, one row per kernel
  pyprof-advise scrub net.sqlite safe.sqlite        a copy without private data
  pyprof-advise net.sqlite --fail-on error          exit status 1 if there is an error
  pyprof-advise net.sqlite --baseline main.json     only findings that are new since that report
  pyprof-advise --dump-config > pyprof-advise.toml  a configuration file to start from

A profile comes from torch.profiler (prof.export_chrome_trace), Nsight Systems or nvprof:
  nsys profile -t cuda,nvtx -o net python train.py
  nsys export --type sqlite -o net.sqlite net.nsys-rep

Exit status: 0 a report was written, whatever it says; 1 a gate failed (--fail-on), or a test or
check of rules and costs; 2 nothing could be analyzed, a named file could not be read, or the
command line was wrong.";

pub(super) const RUN: &str = "\
Examples:
  pyprof-advise run -- python train.py                    record some steps, then advise
  pyprof-advise run -o advice.md -- torchrun --nproc-per-node=4 train.py
  pyprof-advise run --stack --format html -o a.html -- accelerate launch train.py
  pyprof-advise run --skip 50 --steps 5 -- uv run train.py
  pyprof-advise run --keep traces/ -- bash job.sh         keep the traces: `pyprof-advise traces/`
  pyprof-advise run --against traces/ -- bash job.sh      what has changed since then

Exit status: that of the program if it is not 0; else 2 if nothing was recorded; else that of the
report: 0 it was written, 1 a gate failed (--fail-on). The last line of standard error says which.";

pub(super) const TRY: &str = "\
Examples:
  pyprof-advise try -- python train.py                    record, then try what findings advise
  pyprof-advise try fused-optimizer compile-model -- python train.py
  pyprof-advise try 'precision/*' --from report.json -- python train.py
  pyprof-advise try --budget 20 -o tried.md --report advice.html -- python train.py
  pyprof-advise try --list                                what can be tried, and for which rules

Exit status: 0 the result was written, whatever it says; 2 nothing could be tried, or the
command line was wrong.";

pub(super) const REPRO: &str = "\
Examples:
  pyprof-advise repro 1 net.pt.trace.json.gz > repro.py   a script for the first finding
  pyprof-advise repro precision/tf32-off report.json -o repro.py
  python3 repro.py                                        time it on the GPU

Exit status: 0 the script was written; 2 no script can be written, or the command line was wrong.";

pub(super) const DIFF: &str = "\
Examples:
  pyprof-advise diff before.sqlite after.sqlite                  the effect of a change
  pyprof-advise diff main.json after.sqlite -o diff.md           a kept report and a profile
  pyprof-advise diff before/ after/                              two jobs, a folder of profiles each
  pyprof-advise diff h100.json.gz mi300.json.gz --format html -o diff.html
  pyprof-advise diff main.json pr.sqlite --fail-on regression=3%
  pyprof-advise diff v1.json v2.json v3.json v4.json             the trend of a series, oldest first

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
  pyprof-advise rules list --select precision          the rules of a category
  pyprof-advise rules explain precision/amp-off        what it detects and advises
  pyprof-advise rules new fusion/my-idea               a file to start from, in rules/
  pyprof-advise rules check rules/ && pyprof-advise rules test rules/";

pub(super) const COSTS: &str = "\
Examples:
  pyprof-advise costs explain aten::addmm              how FLOPs and bytes are counted
  pyprof-advise costs list attention                   operators with this in their name
  pyprof-advise costs test my-costs.toml               test your own costs";

pub(super) const GPUS: &str = "\
Examples:
  pyprof-advise gpus list                              names for --gpu
  pyprof-advise gpus show a100 > my-board.toml         a file for --gpu to start from";

pub(super) const SCHEMA: &str = "\
Examples:
  pyprof-advise schema report > report.json            the schema of --format json
  pyprof-advise schema diff > diff.json                the schema of diff --format json
  pyprof-advise schema config > config.json            the schema of --config files";

pub(super) const COMPLETIONS: &str = "\
Examples:
  pyprof-advise completions bash > ~/.local/share/bash-completion/completions/pyprof-advise
  pyprof-advise completions zsh > ~/.zfunc/_pyprof-advise
  pyprof-advise completions fish > ~/.config/fish/completions/pyprof-advise.fish";

pub(super) const MAN: &str = "\
Examples:
  pyprof-advise man | man -l -                         read it
  pyprof-advise man > /usr/local/share/man/man1/pyprof-advise.1
  pyprof-advise man rules list | man -l -              the page of a command";

pub(super) const PARSE: &str = "\
Examples:
  pyprof-advise parse net.sqlite > net.dict            for prof, and for scripts written for PyProf
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
  pyprof-advise rules test my-rules/ --verbose         your rules, listing every test";

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
  pyprof-advise gpus show my-board.toml                how your file was understood";
