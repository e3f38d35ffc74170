//! The control directory of a node: what the processes of a job, and those that outlive it, write there for each other.
//! See docs/user/concepts.md.
//!
//! It should be local to the node. A run detects at its start if several nodes see the same one; then each node has its own
//! folder in it, `nodes/node.<n>`. Processes on the node that are no ranks find it by the node's name.

use super::node_dir;
use super::sharing::{Seen, Sharing};
use super::store::own_folder;
use crate::error::{Doing as _, Error};
use crate::job::{job_folder, Job};
use scr_base::env::Env;
use scr_base::fs::{FsError, OwnedDir};
use scr_config::param::{self, Params};
use std::path::Path;

/// The control directory of this node for the job that the parameters are of: `<SCR_CNTL_BASE>/<user>/scr.<allocation>`, or
/// the node's folder in it. `None` where it is not there.
///
/// # Errors
/// It belongs to another user, or another user could have changed what is in it.
pub fn find_control_dir(env: &Env, params: &Params) -> Result<Option<OwnedDir>, FsError> {
    let base = params.get(&param::CNTL_BASE);
    let control = OwnedDir::find(&*env.files, &base, &job_folder(params), env.uid)?;
    control.map(|control| own(control, params, env.uid)).transpose()
}

/// As [`find_control_dir`], and made where it is not there.
///
/// # Errors
/// As there, and where it cannot be made.
pub fn make_control_dir(env: &Env, params: &Params) -> Result<OwnedDir, FsError> {
    let base = params.get(&param::CNTL_BASE);
    own(OwnedDir::make(&*env.files, &base, &job_folder(params), env.uid)?, params, env.uid)
}

/// Makes the control directory. Gives the job's folder for that, who sees it, and that of this node. Collective.
///
/// # Errors
/// A folder cannot be made.
pub(super) fn open(job: &Job, sharing: &Sharing<'_>) -> Result<(OwnedDir, Seen, OwnedDir), Error> {
    let (files, base) = (job.files(), &job.descriptors.control);
    let doing = format!("making the control folder on {} (SCR_CNTL_BASE)", base.name);
    let made = OwnedDir::make(files, &base.path, &job.job_folder(), job.env.uid);
    let control = job.agree(made).doing(&doing)?;
    job.report_other_name(&base.path, &control);
    let seen = sharing.of(&control, NUMBER).doing(&doing)?;
    let Some((one, other)) = seen.placement.first_apart_in(&job.nodes) else {
        let own = job.agree(own(control.clone(), &job.params, job.env.uid)).doing(&doing)?;
        return Ok((control, seen, own));
    };
    let node = |rank| format!("{} (rank {rank})", job.nodes.name(rank));
    job.warn_of_setting(&format!(
        "{} and {} see the same control folder on {} (SCR_CNTL_BASE): each node gets a folder of its own there. Name a \
         folder on the nodes themselves",
        node(one),
        node(other),
        base.name,
    ));
    let nodes = control.make_below(Path::new(NODES), job.env.uid);
    let nodes = job.agree(nodes).doing(&doing)?;
    let folder = own_folder(job, &seen.placement, &nodes, "").doing(&doing)?;
    let own = job.agree(nodes.make_below(&folder.below(Path::new("")), job.env.uid)).doing(&doing)?;
    Ok((control, seen, own))
}

/// The folder that this node has got in a control directory, or else the directory itself.
fn own(control: OwnedDir, params: &Params, uid: u32) -> Result<OwnedDir, FsError> {
    let nodes = control.path().join(NODES);
    let folder = node_dir::find(&**control.files(), &nodes, &params.get(&param::NODE_NAME));
    match folder.as_deref().and_then(Path::file_name) {
        Some(folder) => control.make_below(&Path::new(NODES).join(folder), uid),
        None => Ok(control),
    }
}

const NODES: &str = "nodes";
/// The stores have the numbers from 0 on.
const NUMBER: usize = usize::MAX;
