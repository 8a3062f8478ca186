//! Rule input without a profile: a few facts and members, defined by the test.

use std::collections::BTreeMap;

use pyprof_advise::correlate::SiteId;
use pyprof_advise::cost::Family;
use pyprof_advise::facts::{
    AffectedSite, AffectedTime, Answer, Fact, Lookup, Member, MemberKind, StepWeight, Totals, Type,
    Value,
};
use pyprof_advise::judge::load::RuleFile;
use pyprof_advise::judge::{RuleInput, RuleResults, RuleSet, Selection, judge};

const fn fact(name: &'static str, ty: Type) -> Fact {
    Fact::new(name, ty, "a fact of the tests")
}

pub(super) static FACTS: &[Fact] = &[
    fact("copy.exposed_ns", Type::DOUBLE),
    fact("copy.kind", Type::STR),
    fact("gap.cause", Type::STR),
    fact("gap.time_ns", Type::DOUBLE),
    Fact {
        needs: "the GPU: name it with `--gpu`",
        ..fact("gpu.tc_align", Type::INTS)
    },
    fact("gpu.flops", Type::DOUBLES),
    fact("kernel.registers", Type::INT),
    fact("layer.name", Type::STR),
    fact("run.steps", Type::INT),
    fact("run.trusted", Type::BOOL),
    fact("site.calls", Type::INT),
    fact("site.family", Type::STR),
    fact("site.gpu_share", Type::DOUBLE),
    Fact {
        families: &[Family::Gemm],
        needs: "tensor shapes",
        ..fact("site.k", Type::INT)
    },
    fact("site.label", Type::STR),
    Fact {
        families: &[Family::Gemm],
        needs: "tensor shapes",
        ..fact("site.m", Type::INT)
    },
    fact("site.math_dtype", Type::STR),
    Fact {
        families: &[Family::Gemm],
        needs: "tensor shapes",
        ..fact("site.n", Type::INT)
    },
    fact("site.names", Type::STRINGS),
    fact("site.rank", Type::INT),
    fact("site.reachable_ns", Type::DOUBLE),
    fact("site.time_ns", Type::DOUBLE),
];

/// Facts of one member.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts(pub(super) BTreeMap<String, Value>);

impl Facts {
    pub(super) fn new(facts: &[(&str, Value)]) -> Facts {
        Facts(
            facts
                .iter()
                .map(|(k, v)| ((*k).to_owned(), v.clone()))
                .collect(),
        )
    }
}

impl Lookup for Facts {
    fn get(&self, name: &str) -> Answer {
        if let Some(value) = self.0.get(name) {
            return Answer::Value(value.clone());
        }
        let families = FACTS
            .iter()
            .find(|f| f.name == name)
            .map_or(&[][..], |f| f.families);
        match self.0.get("site.family") {
            Some(Value::Str(family))
                if !families.is_empty() && !families.iter().any(|f| f.name() == &**family) =>
            {
                Answer::DoesNotApply
            }
            _ => Answer::Absent,
        }
    }
}

pub(super) fn s(word: &str) -> Value {
    Value::Str(word.into())
}

pub(super) fn d(value: f64) -> Value {
    Value::Double(value)
}

pub(super) fn i(value: i64) -> Value {
    Value::Int(value)
}

pub(super) fn ints(pairs: &[(&str, i64)]) -> Value {
    let map: BTreeMap<_, _> = pairs.iter().map(|(k, v)| ((*k).into(), *v)).collect();
    Value::Ints(map.into())
}

/// A handmade run.
pub(super) struct Fake {
    pub(super) members: Vec<(Member, Facts, AffectedTime)>,
    pub(super) totals: Totals,
}

impl Default for Fake {
    fn default() -> Fake {
        Fake {
            members: Vec::new(),
            totals: Totals {
                gpu_busy_ns: 1e6,
                kernel_ns: 1e6,
                window_ns: 2e6,
                idle_ns: 1e6,
                copy_ns: 1e5,
                comm_ns: 0.0,
                comm_slack_ns: 0.0,
                host_slack_ns: None,
                devices: 1,
                devices_at_once: 1.0,
                step_weight: Some(1.0),
                reliable_idle_ns: 1e6,
                late_launch_ns: 1e6,
                paced_by_workers: false,
            },
        }
    }
}

impl Fake {
    /// Adds a site that takes `time` ns, of which `floor` ns are reachable.
    pub(super) fn site(
        &mut self,
        number: u32,
        layer: &str,
        time: f64,
        floor: f64,
        facts: &[(&str, Value)],
    ) {
        let mut facts = Facts::new(facts);
        facts.0.insert("site.time_ns".into(), d(time));
        facts.0.insert("site.reachable_ns".into(), d(floor));
        let affected = AffectedTime {
            sites: vec![AffectedSite {
                site: SiteId(number),
                time_ns: time,
                floor_ns: floor,
                exposed_share: 1.0,
                beside_comm_share: 0.0,
                step_weight: None,
            }],
            calls: 10,
            time_ns: time,
            place: format!("{layer}: linear"),
            layer: Some(layer.to_owned()),
            ..AffectedTime::default()
        };
        self.members
            .push((Member::Site(SiteId(number)), facts, affected));
    }

    /// Adds a chain that takes a part of each of these sites.
    pub(super) fn chain(&mut self, number: u32, parts: &[(u32, f64)]) {
        let parts = parts.iter().map(|&(site, time_ns)| AffectedSite {
            site: SiteId(site),
            time_ns,
            floor_ns: 0.0,
            exposed_share: 1.0,
            beside_comm_share: 0.0,
            step_weight: None,
        });
        let sites: Vec<AffectedSite> = parts.collect();
        let affected = AffectedTime {
            calls: 10,
            time_ns: sites.iter().map(|part| part.time_ns).sum(),
            sites,
            place: format!("chain {number}"),
            ..AffectedTime::default()
        };
        self.members
            .push((Member::Chain(number), Facts::new(&[]), affected));
    }

    pub(super) fn gap(&mut self, number: u32, time: f64, cause: &str) {
        let facts = Facts::new(&[("gap.time_ns", d(time)), ("gap.cause", s(cause))]);
        let affected = AffectedTime {
            idle_ns: time,
            calls: 1,
            time_ns: time,
            place: format!("gap {number}"),
            ..AffectedTime::default()
        };
        self.members.push((Member::Gap(number), facts, affected));
    }

    pub(super) fn copy(&mut self, number: u32, exposed: f64) {
        let facts = Facts::new(&[
            ("copy.exposed_ns", d(exposed)),
            ("copy.kind", s("pageable")),
        ]);
        let affected = AffectedTime {
            copy_ns: exposed,
            calls: 1,
            time_ns: exposed,
            place: format!("copy {number}"),
            ..AffectedTime::default()
        };
        self.members.push((Member::Copy(number), facts, affected));
    }

    pub(super) fn run(&mut self, facts: &[(&str, Value)]) {
        let affected = AffectedTime {
            calls: 1,
            time_ns: self.totals.gpu_busy_ns,
            place: "the whole run".into(),
            ..AffectedTime::default()
        };
        self.members
            .push((Member::Run, Facts::new(facts), affected));
    }

    pub(super) fn judge(&self, rules: &RuleSet) -> RuleResults {
        judge(rules, self)
    }
}

impl RuleInput for Fake {
    fn facts(&self) -> &[Fact] {
        FACTS
    }

    fn members(&self, over: MemberKind) -> Vec<Member> {
        let of = |member: &Member| match member {
            Member::Run => MemberKind::Run,
            Member::Step(_) => MemberKind::Step,
            Member::Layer(_) => MemberKind::Layer,
            Member::Site(_) => MemberKind::Site,
            Member::Chain(_) => MemberKind::Chain,
            Member::Kernel(..) => MemberKind::Kernel,
            Member::Copy(_) => MemberKind::Copy,
            Member::Gap(_) => MemberKind::Gap,
            Member::Rank(_) => MemberKind::Rank,
        };
        let all = self.members.iter().map(|(member, ..)| *member);
        all.filter(|member| of(member) == over).collect()
    }

    fn lookup(&self, member: Member) -> Box<dyn Lookup + '_> {
        let found = self.members.iter().find(|(m, ..)| *m == member);
        Box::new(found.map(|(_, facts, _)| facts.clone()).unwrap_or_default())
    }

    fn affected(&self, member: Member) -> AffectedTime {
        let found = self.members.iter().find(|(m, ..)| *m == member);
        let mut affected = found
            .map(|(.., affected)| affected.clone())
            .unwrap_or_default();
        // Sites weigh as much as the run, unless a test says otherwise.
        for site in &mut affected.sites {
            let of_run = self.totals.step_weight.map(StepWeight::exactly);
            site.step_weight = site.step_weight.or(of_run);
        }
        affected
    }

    fn totals(&self) -> Totals {
        self.totals
    }
}

/// A rule file with this text.
pub(super) fn file(id: &str, text: &str) -> RuleFile {
    RuleFile {
        id: id.to_owned(),
        source: pyprof_advise::base::diag::Source::new(format!("{id}.toml"), text),
        builtin: false,
        decision: None,
    }
}

pub(super) fn load(files: &[(&str, &str)]) -> Result<RuleSet, String> {
    load_with(files, &Selection::default())
}

pub(super) fn load_with(files: &[(&str, &str)], selection: &Selection) -> Result<RuleSet, String> {
    let files: Vec<RuleFile> = files.iter().map(|(id, text)| file(id, text)).collect();
    RuleSet::load(&files, selection, FACTS).map_err(|c| c.render(false))
}

/// The rule of each dropped finding, and the rule that took its place.
pub(super) fn dropped(results: &RuleResults) -> Vec<(&str, &str)> {
    let all = results.dropped.iter();
    all.map(|s| (s.rule.as_str(), s.by.as_str())).collect()
}

/// A small rule over sites, in which `body` replaces or adds lines.
pub(super) fn rule(body: &str) -> String {
    with(
        &[
            ("title", "\"A title\""),
            ("severity", "\"warning\""),
            ("confidence", "\"high\""),
            ("for_each", "\"site\""),
            ("when", "'site.family == \"gemm\"'"),
            ("message", "\"says\""),
            ("why", "\"because\""),
            ("fix", "\"do it\""),
        ],
        body,
    )
}

/// Keys with defaults; a key at the top of `body` takes precedence. Two tests are added unless it has
/// its own.
fn with(defaults: &[(&str, &str)], body: &str) -> String {
    let top = body.split("\n[").next().unwrap_or_default();
    let set = |key: &str| {
        top.lines()
            .any(|line| line.trim_start().split(['=', ' ']).next() == Some(key))
    };
    let mut text = String::new();
    for (key, value) in defaults {
        if !set(key) {
            text.push_str(&format!("{key} = {value}\n"));
        }
    }
    text.push_str(body);
    if !body.contains("[[test]]") {
        text.push_str(
            "\n[[test]]\nname = \"a\"\nfires = \"says\"\n[[test]]\nname = \"b\"\nsilent = true\n",
        );
    }
    text
}
