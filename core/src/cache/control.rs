//! The control directory of a node: what the processes of a job, and those that outlive it, tell each other there. See the
//! guide's section "Control, cache, and prefix directories".
//!
//! It should lie on the node itself. Where several nodes see the same one, which is found out when a run begins, each has a
//! folder of its own in it, `nodes/node.<n>`. Processes on the node that are no ranks are led there by the node's name.

use super::node_dir;
use super::sharing::Sharing;
use super::store::own_folder;
use crate::error::{Doing, Error};
use crate::fs::Files;
use crate::job::{job_folder, Job};
use crate::param::{self, Params};
use crate::Described;
use std::path::{Path, PathBuf};

/// The control directory of this node for the job that the parameters are of: `<SCR_CNTL_BASE>/<user>/scr.<allocation>`, or
/// the node's folder in it.
pub fn control_dir(files: &dyn Files, params: &Params) -> PathBuf {
    let control = params.get(&param::CNTL_BASE).join(job_folder(params));
    own(files, &control, params).unwrap_or(control)
}

/// Makes the control directory. Collective.
///
/// # Errors
/// A folder cannot be made.
pub(crate) fn open(job: &Job, sharing: &Sharing<'_>) -> Result<PathBuf, Error> {
    let (files, base) = (job.files(), &job.descriptors.control);
    let doing = || format!("making the control folder on {} (SCR_CNTL_BASE)", base.name);
    let made = files.make_private_dirs(&base.path, &job.job_folder(), job.env.uid);
    let control = job.agree(made.described()).doing(doing)?;
    let seen = sharing.of(&control, NUMBER)?.placement;
    let Some((one, other)) = seen.first_apart_in(&job.nodes) else {
        return Ok(own(files, &control, &job.params).unwrap_or(control));
    };
    let node = |rank| format!("{} (rank {rank})", job.nodes.name(rank));
    job.report.warn(&format!(
        "{} and {} see the same control folder on {} (SCR_CNTL_BASE): each node gets a folder of its own there. Name a \
         folder on the nodes themselves",
        node(one),
        node(other),
        base.name,
    ));
    let nodes = files.make_private_dirs_in(&control, Path::new(NODES), job.env.uid);
    let nodes = job.agree(nodes.described()).doing(doing)?;
    own_folder(job, &seen, &nodes).doing(doing)
}

/// The folder that this node has got in a control directory.
fn own(files: &dyn Files, control: &Path, params: &Params) -> Option<PathBuf> {
    node_dir::find(files, &control.join(NODES), &params.get(&param::NODE_NAME))
}

const NODES: &str = "nodes";
/// The stores have the numbers from 0 on.
const NUMBER: usize = usize::MAX;
