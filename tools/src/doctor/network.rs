//! Whether the nodes reach each other on the network that protects checkpoints while the application computes.
//!
//! The nodes of a group meet in a folder of the prefix directory: each listens, and leaves a file there that is named by its
//! address and holds its name. Once all have come, each connects to all others.

use super::Verdict::{Bad, Good};
use super::{answer_of, Check};
use crate::machine::{command_here, print_answer, Allocation, Limit, AT_ONCE};
use crate::prelude::*;
use scr_base::fs::RealFiles;
use scr_base::parallel::each;
use scr_comm::tcp::interface::choose;
use scr_comm::tcp::listen;
use std::net::{SocketAddr, TcpStream};

/// Lets these nodes connect to each other, if any checkpoint needs that. If there are many nodes, each connects to those of its
/// group, and neighbouring groups have a node in common.
pub(super) fn check(params: &Params, allocation: &Allocation, nodes: &[String]) -> Vec<Check> {
    let is_needed = environment::descriptors(params)
        .is_ok_and(|descriptors| descriptors.redundancy.all().iter().any(|wanted| wanted.is_behind()));
    if !is_needed || nodes.len() < 2 {
        return Vec::new();
    }
    let mut checks = Vec::new();
    for first in (0..nodes.len() - 1).step_by(AT_ONCE - 1) {
        let group = &nodes[first..nodes.len().min(first + AT_ONCE)];
        match meet(params, allocation, group) {
            Ok(found) => checks.extend(found),
            Err(error) => return vec![Check::of("network", Err(error))],
        }
    }
    if checks.is_empty() {
        let text = format!("{} nodes connect to each other for ENCODE=ASYNC", nodes.len());
        checks.push(Check::new(Good, "network", text));
    }
    checks
}

/// Lets the nodes of a group connect to each other, and reports what is wrong between them.
fn meet(params: &Params, allocation: &Allocation, group: &[String]) -> Result<Vec<Check>> {
    let prefix = params.get(&param::PREFIX);
    let folder = tempfile::Builder::new().prefix(".scr-doctor.").tempdir_in(&prefix);
    let folder = folder.or_cannot("make a folder in", &prefix)?.keep();
    let path = folder.to_str().context("the name of the prefix directory is not UTF-8")?;
    let count = group.len().to_string();
    let command = command_here(&["doctor", "--meet-in", path, "--nodes", &count])?;
    let answers = allocation.on_nodes().run(group, &command, Limit::Total(LONGEST));
    let checks = group.iter().zip(answers).flat_map(|(node, answer)| {
        let subject = format!("node {node}: network");
        match answer_of::<Vec<String>>(answer) {
            Err(error) => vec![Check::of(&subject, Err(error))],
            Ok(found) => found.into_iter().map(|text| Check::new(Bad, subject.clone(), text)).collect(),
        }
    });
    let checks = checks.collect();
    drop((&RealFiles as &dyn Files).remove_tree(&folder));
    Ok(checks)
}

/// Connects to the other nodes, and prints for the doctor what is wrong.
pub(super) fn print_report(env: &Env, params: &Params, (folder, count): (&Path, usize)) -> Result<Answer> {
    print_answer(&connect(env, params, folder, count).unwrap_or_else(|error| vec![format!("{error:#}")]))
}

fn connect(env: &Env, params: &Params, folder: &Path, count: usize) -> Result<Vec<String>> {
    let ip = choose(params.get(&param::TCP_INTERFACE).as_deref(), &env.host, false)?;
    let ports = params.get(&param::TCP_PORTS).map(|(first, last)| first..=last);
    let (_listener, own) = listen(ip, ports.as_ref()).with_context(|| format!("cannot listen at {ip}"))?;
    leave(folder, &own.to_string(), &params.get(&param::NODE_NAME))?;
    let nodes = wait_for(folder, count, |file| file.parse::<SocketAddr>().ok())?;
    let others = nodes.iter().filter(|(address, _)| **address != own).collect();
    let wrong = each(others, |(address, name)| reach(*address, name, ip)).context("cannot start a thread")?;
    // Others may still be about to connect.
    leave(folder, &format!("{own}{DONE}"), "")?;
    wait_for(folder, count, |file| file.strip_suffix(DONE)?.parse::<SocketAddr>().ok())?;
    Ok(wrong.into_iter().flatten().collect())
}

/// Connects to another node, and reports what is wrong with the way there.
fn reach(address: SocketAddr, name: &str, own: std::net::IpAddr) -> Option<String> {
    let error = TcpStream::connect_timeout(&address, LONGEST_CONNECT).err()?;
    Some(format!(
        "cannot connect from {own} to {name} at {}: {error}; set SCR_TCP_INTERFACE to a network that connects the nodes, or let \
         their ports be opened to each other",
        address.ip()
    ))
}

/// A file that is there with all of its text.
fn leave(folder: &Path, name: &str, text: &str) -> Result<()> {
    let (begun, whole) = (folder.join(format!(".{name}")), folder.join(name));
    fs::write(&begun, text).and_then(|()| fs::rename(&begun, &whole)).or_cannot("write", &whole)
}

/// The files of this many nodes, with their texts.
fn wait_for(
    folder: &Path,
    count: usize,
    address: impl Fn(&str) -> Option<SocketAddr>,
) -> Result<BTreeMap<SocketAddr, String>> {
    let began = Instant::now();
    loop {
        let mut found = BTreeMap::new();
        for file in paths_in(folder).or_cannot("read", folder)? {
            if let Some(address) = file.file_name().and_then(OsStr::to_str).and_then(&address) {
                found.insert(address, fs::read_to_string(file)?);
            }
        }
        if found.len() >= count {
            return Ok(found);
        }
        if began.elapsed() > LONGEST_WAIT {
            let (came, names) = (found.len(), found.into_values().collect::<Vec<_>>().join(", "));
            bail!("of {count} nodes, {came} have come to {}: {names}", folder.display());
        }
        std::thread::sleep(LOOK);
    }
}

/// The end of the name of a file that says that its node has connected to the others.
const DONE: &str = ".done";
const LOOK: Duration = Duration::from_millis(50);
/// A file system may show the files of other nodes late.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// As the ranks wait for each other.
const LONGEST_CONNECT: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(180);
