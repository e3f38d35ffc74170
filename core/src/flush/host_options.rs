//! The options that the host gives to a transport whose manifest has them.

use super::throttle::SharedSlots;
use crate::cache::Cache;
use crate::job::Job;
use crate::plugin::Manifest;
use scr_config::descriptor::FlushBy;
use scr_config::param;

/// The options that the host knows. Limits are for all that is flushed behind the application, so each process gets its share, or
/// each node where one process copies for the whole node.
pub(crate) fn host_options(
    job: &Job,
    cache: &Cache,
    wanted: &FlushBy,
    manifest: &Manifest,
    behind: bool,
) -> Vec<(&'static str, String)> {
    let mut known = vec![
        ("CONTROL", cache.control().display().to_string()),
        ("USLEEP", job.params.get(&param::FLUSH_ASYNC_USLEEP).to_string()),
    ];
    if let Some(install) = &job.env.install_dir {
        known.push(("PROGRAM", install.join("bin/scr").display().to_string()));
    }
    let nodes = u32::try_from(job.nodes.count()).unwrap_or(u32::MAX);
    let width = job.params.get(&param::FLUSH_WIDTH).max(1);
    known.push(("WIDTH", job.nodes.share(width).to_string()));
    if nodes > width && !wanted.gives("WIDTH") {
        // One for each node would be too many.
        known.push(("SLOTS_FOLDER", SharedSlots::folder(&job.prefix).display().to_string()));
        known.push(("SLOTS", width.to_string()));
    }
    if behind {
        let limit = job.params.get(&param::FLUSH_ASYNC_BW);
        let shares = match manifest.capabilities.survives_job {
            true if wanted.gives("WIDTH") => u64::from(nodes),
            // No more of them copy at a time.
            true => u64::from(nodes.min(width)),
            false => u64::from(job.comm.size().min(width)),
        };
        // A share of nothing would be no limit at all.
        let share = if limit == 0 { 0 } else { (limit / shares).max(1) };
        known.push(("BW", share.to_string()));
        known.push(("PERCENT", job.params.get(&param::FLUSH_ASYNC_PERCENT).to_string()));
    }
    known
}
