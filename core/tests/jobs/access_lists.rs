//! A prefix directory with a default access control list: what scr writes there has the rights that a file of the application has
//! which is written there itself.

use super::scavenged::save;
use super::world::{contents, path_of, Application, World};
use scr_comm::Rank;
use scr_core::session::OutputFlags;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

const CHECKPOINT: OutputFlags = OutputFlags { checkpoint: true, output: false };
const MODES: [u32; 3] = [0o666, 0o600, 0o777];

/// Gives new files in a folder a list by which user 4321 may read and write them, and others nothing. `false` where the file
/// system has none.
fn set_default_list(folder: &Path) -> bool {
    let anybody = u32::MAX;
    let entries =
        [(1_u16, 7_u16, anybody), (2, 6, 4321), (4, 5, anybody), (0x10, 7, anybody), (0x20, 0, anybody)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, whose) in entries {
        list.extend(tag.to_le_bytes().into_iter().chain(rights.to_le_bytes()).chain(whose.to_le_bytes()));
    }
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(folder, "system.posix_acl_default", &list, none).is_ok()
}

/// The list of a file, or else its permissions alone.
fn rights(path: &Path) -> (u32, Vec<u8>) {
    let mut list = vec![0; 200];
    let length = rustix::fs::getxattr(path, "system.posix_acl_access", &mut list[..]).unwrap_or(0);
    list.truncate(length);
    (std::fs::metadata(path).unwrap().permissions().mode() & 0o777, list)
}

fn write_file(path: &Path, bytes: &[u8], mode: u32) {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.unwrap().write_all(bytes).unwrap();
}

fn write(application: &mut Application) {
    let rank = application.rank;
    let session = application.session();
    session.start_output(Some(b"ck"), CHECKPOINT).unwrap();
    for (number, mode) in MODES.into_iter().enumerate() {
        let path = session.route_file(format!("ck/{rank}.{number}").as_bytes()).unwrap();
        write_file(path_of(&path), &contents(1, rank, number, 5000), mode);
    }
    session.complete_output(true).unwrap();
}

/// The mask was `r--`, so that the members of the project could not write.
#[test]
fn files_in_the_prefix_directory_have_the_rights_that_its_list_gives() {
    for settings in [
        &[("SCR_FLUSH", "1")] as &[_],
        &[("SCR_FLUSH", "1"), ("SCR_FLUSH_ASYNC", "1"), ("SCR_FLUSH_TYPE", "PTHREAD")],
        &[],
    ] {
        let world = settings.iter().fold(World::new(2, 2), |world, (name, value)| world.set(name, value));
        if !set_default_list(&world.prefix()) {
            println!("skipped: the file system has no access control lists");
            return;
        }
        let world = match settings {
            [] => {
                world.run(write);
                // Its part is rebuilt.
                world.lose("n1");
                save(world, 1)
            }
            _ => {
                world.run(|application| {
                    write(application);
                    application.finalize().unwrap();
                });
                world
            }
        };
        for (number, mode) in MODES.into_iter().enumerate() {
            let direct = world.prefix().join(format!("direct.{mode:o}"));
            write_file(&direct, b"", mode);
            for rank in (0..2).map(Rank) {
                let path = world.prefix().join(format!("ck/{rank}.{number}"));
                assert!(std::fs::read(&path).unwrap() == contents(1, rank, number, 5000), "other bytes");
                assert_eq!(rights(&path), rights(&direct), "{settings:?} {mode:o} of rank {rank}");
            }
        }
    }
}

#[test]
fn rights_that_the_application_has_taken_away_are_not_given_back() {
    let world = World::new(2, 2).set("SCR_FLUSH", "1");
    if !set_default_list(&world.prefix()) {
        println!("skipped: the file system has no access control lists");
        return;
    }
    world.run(|application| {
        let rank = application.rank;
        let session = application.session();
        session.start_output(Some(b"ck"), CHECKPOINT).unwrap();
        let path = session.route_file(format!("ck/{rank}").as_bytes());
        let path = path_of(&path.unwrap()).to_owned();
        std::fs::write(&path, "mine").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        application.session().complete_output(true).unwrap();
        application.finalize().unwrap();
    });
    assert_eq!(rights(&world.prefix().join("ck/1")).0, 0o400);
}
