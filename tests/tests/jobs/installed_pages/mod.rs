//! The pages that are installed: every link in them leads to something that is installed as well, and every command in them
//! works as it is written.

mod blocks;

use blocks::{blocks_of, Block};
use scr_tests::{forget_settings, on_any_mpi, repository, stage, Mpi};
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

on_any_mpi! {
    fn every_link_leads_to_an_installed_file_and_to_a_heading_in_it(mpi: Mpi) {
        let pages = pages_below(&stage(mpi).join("share/doc/scr"));
        assert!(pages.len() > 20, "{pages:?}");
        let broken: Vec<_> = pages.iter().flat_map(|page| broken_links(page)).collect();
        assert_eq!(broken, Vec::<String>::new());
    }

    fn every_command_of_the_pages_works_as_it_is_written(mpi: Mpi) {
        let reader = Reader::new(mpi);
        for page in pages_with_commands(&stage(mpi).join("share/doc/scr")) {
            reader.follow(&page);
        }
    }
}

#[test]
fn every_block_of_the_pages_says_what_becomes_of_it() {
    let pages = pages_with_commands(repository());
    let unclear: Vec<_> = pages.iter().flat_map(|page| blocks_of(page)).filter_map(Result::err).collect();
    assert_eq!(unclear, Vec::<String>::new());
}

/// First the one that makes the program that others run.
fn pages_with_commands(docs: &Path) -> Vec<PathBuf> {
    let mut pages = vec![docs.join("docs/user/getting-started.md"), docs.join("README.md")];
    pages.extend(["docs/user", "docs/plugins"].iter().flat_map(|folder| pages_below(&docs.join(folder))));
    let mut seen = BTreeSet::new();
    pages.retain(|page| seen.insert(page.clone()));
    pages
}

/// Somebody with an installed tree, its MPI and the pages.
struct Reader {
    home: tempfile::TempDir,
    mpi: Mpi,
    allocation: String,
}

impl Reader {
    fn new(mpi: Mpi) -> Self {
        let home = tempfile::tempdir().expect("a home can be made");
        std::os::unix::fs::symlink(stage(mpi), home.path().join("scr")).expect("a link can be made");
        for folder in ["bin", "pfs/run1/.scr", "local/node"] {
            std::fs::create_dir_all(home.path().join(folder)).expect("a folder can be made");
        }
        // The commands of an MPI have their usual names where it is the only one.
        for name in ["mpicc", "mpirun", "mpiexec"] {
            let command = home.path().join("bin").join(name);
            std::fs::write(&command, format!("#!/bin/sh\nexec {name}.{} \"$@\"\n", mpi.name()))
                .expect("a script");
            std::fs::set_permissions(&command, Permissions::from_mode(0o755)).expect("the script is ours");
        }
        Self { allocation: format!("pages-{}-{}", mpi.name(), std::process::id()), home, mpi }
    }

    /// Does what a page says, in one shell and a folder of its own.
    fn follow(&self, page: &Path) {
        let blocks: Vec<_> = blocks_of(page).into_iter().map(|block| block.expect("a class")).collect();
        let folder = self.home.path().join(page.file_stem().expect("a page has a name"));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        for file in ["app", "app.c"] {
            _ = std::fs::copy(self.home.path().join("app").join(file), folder.join(file));
        }
        let output = |at: usize| folder.join(format!("output.{at}"));
        let mut script = String::new();
        for (at, block) in blocks.iter().enumerate() {
            script += &format!("exec >'{}' 2>&1\n{}", output(at).display(), block.script());
        }
        let status = self.bash(&folder, &script);
        let read = |at| std::fs::read_to_string(output(at)).ok();
        let last = (0..blocks.len()).rev().find(|&at| read(at).is_some()).unwrap_or(0);
        let described = |at: usize, block: &Block| {
            format!("{}:\n{}{}", block.place, block.text, read(at).unwrap_or_default())
        };
        for (at, block) in blocks.iter().enumerate() {
            let missing = block.missing_from(&read(at).unwrap_or_default());
            assert!(missing.is_none(), "{missing:?} is not in the output of {}", described(at, block));
            assert!(status || at < last, "a command fails of {}", described(at, block));
        }
    }

    fn bash(&self, folder: &Path, script: &str) -> bool {
        let home = self.home.path().display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        // The folders of a site.
        let script = script
            .replace("/pfs/", &format!("{home}/pfs/"))
            .replace("/local/$SCR_NODE_NAME", &format!("{home}/local/node"));
        let mut command = Command::new("timeout");
        forget_settings(&mut command);
        let command = command.args(["120", "bash", "-c", &script]);
        let command = command.current_dir(folder).env("HOME", &home).env("SCR_DIR", format!("{home}/scr"));
        let command = command.env("PATH", format!("{home}/bin:{home}/scr/bin:{path}"));
        let command = command.env("SCR_JOB_ID", &self.allocation).env("DW_JOB_STRIPED", &home);
        let command = command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let command = command.env("OMPI_MCA_orte_tmpdir_base", &home);
        command.status().expect("bash can be started").success()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut clean = Command::new(stage(self.mpi).join("bin/scr"));
        _ = clean.args(["clean", "--discard-unsaved", "--allocation", &self.allocation, "--ended"]).output();
    }
}

fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder can be listed").flatten() {
        let path = entry.path();
        if path.is_dir() {
            pages.extend(pages_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages
}

fn broken_links(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).expect("a page can be read");
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    let near = links.filter(|link| !link.contains("://") && !link.starts_with("mailto:"));
    near.filter(|link| !leads_somewhere(page, link))
        .map(|link| format!("{}: {link}", page.display()))
        .collect()
}

fn leads_somewhere(page: &Path, link: &str) -> bool {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { page.to_owned() } else { page.with_file_name(file) };
    if heading.is_empty() || !target.exists() {
        return target.exists();
    }
    let text = std::fs::read_to_string(&target).expect("a page can be read");
    let headings: BTreeSet<_> = text.lines().filter(|line| line.starts_with('#')).map(anchor).collect();
    headings.contains(heading)
}

/// The name of a heading in links: small letters, and hyphens for blanks; all else but letters and digits is left out.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
