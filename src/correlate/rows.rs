//! The rows of a run by their handles. A handle of another run may have no row.

use super::model::{
    ArgsId, Layer, LayerId, LayerPattern, Link, OpArgs, OpCall, OpCallId, PatternId, Run, Scope,
    ScopeId, Site, SiteId, Step, StepId,
};
use crate::profile::{ApiCall, KernelId};

impl Run {
    /// What is known of a kernel.
    pub fn link(&self, id: KernelId) -> Option<&Link> {
        self.links.get(id.idx())
    }

    /// The call that launched a kernel.
    pub fn launch_of(&self, id: KernelId) -> Option<&ApiCall> {
        self.profile.call(self.link(id)?.launch?)
    }

    /// A scope.
    pub fn scope(&self, id: ScopeId) -> Option<&Scope> {
        self.scopes.get(id.idx())
    }

    /// An operator call.
    pub fn op_call(&self, id: OpCallId) -> Option<&OpCall> {
        self.op_calls.get(id.idx())
    }

    /// The operator call that a kernel belongs to.
    pub fn op_call_of(&self, id: KernelId) -> Option<&OpCall> {
        self.op_call(self.link(id)?.op?)
    }

    /// The arguments of an operator call.
    pub fn arguments(&self, id: ArgsId) -> Option<&OpArgs> {
        self.args.get(id.idx())
    }

    /// The arguments of the calls of a site.
    pub fn arguments_of(&self, site: &Site) -> Option<&OpArgs> {
        self.arguments(site.args?)
    }

    /// A layer.
    pub fn layer(&self, id: LayerId) -> Option<&Layer> {
        self.layers.get(id.idx())
    }

    /// The layer of a site.
    pub fn layer_of(&self, site: &Site) -> Option<&Layer> {
        self.layer(site.layer?)
    }

    /// A layer pattern.
    pub fn pattern(&self, id: PatternId) -> Option<&LayerPattern> {
        self.patterns.get(id.idx())
    }

    /// A site.
    pub fn site(&self, id: SiteId) -> Option<&Site> {
        self.sites.get(id.idx())
    }

    /// A step.
    pub fn step(&self, id: StepId) -> Option<&Step> {
        self.steps.get(id.idx())
    }
}
