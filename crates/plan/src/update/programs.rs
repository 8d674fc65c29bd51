//! From a planned update to programs: which versions of blocks they read, and which they write.

use super::UpdatePlan;
use crate::{PlanError, Program, ProgramContext, RunId};

impl UpdatePlan {
    /// The programs of each graph, each a run of its own with a job from `job` (that of the context is not used). Loads
    /// are deltas to the blocks' versions in `generations`, by block index, or away from home what replicas say of them; what
    /// is persisted becomes version `next`.
    ///
    /// # Errors
    /// `Invalid` unless `next` is above all generations, of which there is one a block; as [`crate::Plan::programs`].
    pub fn programs(
        &self,
        context: &ProgramContext<'_>,
        generations: &[u32],
        next: u32,
        job: &mut dyn FnMut() -> RunId,
    ) -> Result<Vec<Vec<Program>>, PlanError> {
        let newest = generations.iter().copied().max().unwrap_or(next);
        if generations.len() != context.view.code.n() || newest >= next {
            return Err(PlanError::Invalid {
                what: format!("generations of {}", context.view.id),
                expected: format!("{}, below the next one, {next}", context.view.code.n()),
                got: format!("{generations:?}"),
            });
        }
        let mut runs = Vec::with_capacity(self.plans.len());
        for plan in &self.plans {
            let mut programs = plan.programs(&ProgramContext { job: job(), resume_key: 0, ..*context })?;
            for program in &mut programs {
                for binding in &mut program.blocks {
                    let at = usize::from(binding.index.0);
                    binding.generation = generations[at];
                    binding.next = Some(next);
                    binding.replica = context.view.homes[at] != Some(program.node);
                }
            }
            runs.push(programs);
        }
        Ok(runs)
    }
}
