//! The base that a run needs.

use fl_compress::Digest;
use fl_compress::weights::BasePlan;
use fl_proto::Joined;

use crate::error::Error;

#[derive(Debug, Clone)]
pub(crate) struct RunBase {
    pub(crate) digest: Digest,
    pub(super) plan: BasePlan,
}

impl RunBase {
    pub(crate) fn of(joined: &Joined) -> Result<Option<Self>, Error> {
        let plan = BasePlan::of(&joined.aside)
            .map_err(|why| Error::Protocol(format!("the frozen tensors of run `{}`: {why}", joined.run)))?;
        Ok(joined.base.zip(plan).map(|(digest, plan)| Self { digest, plan }))
    }

    pub(crate) fn len(&self) -> u64 {
        self.plan.file_len()
    }
}
