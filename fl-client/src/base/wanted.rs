//! The base that a run needs.

use fl_compress::Digest;
use fl_compress::weights::BasePlan;
use fl_proto::Joined;

use crate::error::Error;

/// The base of a run.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) digest: Digest,
    pub(super) plan: BasePlan,
}

impl Wanted {
    /// The base of the joined run; `None` if it has none.
    ///
    /// # Errors
    /// `Protocol` if its tensors cannot be a safetensors file.
    pub(crate) fn of(joined: &Joined) -> Result<Option<Self>, Error> {
        let unusable = |why| Error::Protocol(format!("the frozen tensors of run `{}`: {why}", joined.run));
        let plan = BasePlan::of(&joined.aside).map_err(unusable)?;
        Ok(joined.base.zip(plan).map(|(digest, plan)| Self { digest, plan }))
    }

    /// Bytes of its file.
    pub(crate) fn len(&self) -> u64 {
        self.plan.file_len()
    }
}
