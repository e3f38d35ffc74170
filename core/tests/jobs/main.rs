//! Whole jobs in one process: ranks are threads, nodes are folders, plugins are the real libraries.
//!
//! | part | what it shows |
//! |---|---|
//! | `world` | the pretend machine that the others run on |
//! | `aggregated` | files that are flushed in containers come back as they were |
//! | `behind` | checkpoints that are protected while the application computes |
//! | `costs` | what a checkpoint costs: messages, bytes, file operations |
//! | `crash` | a job that dies between any two operations comes back with what it was promised |
//! | `one_rank` | an operation that fails on one rank is one outcome for all, whatever it is and whenever it happens |
//! | `effects` | each parameter has its effect, wherever it is set |
//! | `histories` | random histories of runs: what comes back is right, and nothing promised is lost |
//! | `healed` | an index that is damaged while a job runs is replaced, or the user learns that nothing is saved |
//! | `halting` | a job stops on each condition, and runs on where none holds |
//! | `parts` | parts of one launch, each with a session of its own |
//! | `passing` | `SCR_ENABLE=0` with `SCR_PASS_THROUGH=1`: a job without a cache restarts from what there is |
//! | `keeping` | which datasets stay in cache, and for how long |
//! | `recovery` | a session with dead ranks makes way for another one in the same processes |
//! | `restarts` | what an application restarts from, and the errors if it cannot |
//! | `chosen` | what a run goes back to, drops, or must not trust |
//! | `managed` | datasets are made current, dropped and deleted, and failed fetches are reported |
//! | `retries` | what must get into the prefix directory sooner or later, and what is refused or shared there |
//! | `identity` | which of two datasets is newer, and which prefix directory they belong to |
//! | `node_loss` | checkpoints survive the loss of nodes, byte for byte |
//! | `large_pages` | the same where the files in cache have large pages |
//! | `descriptors` | several stores, schemes and failure groups in one job |
//! | `any_ranks` | a run restarts from what another number of ranks wrote, if the application can |
//! | `taken_over` | what another number of ranks left in cache comes back, with nodes lost and files damaged |
//! | `lent` | its files come from node to node, and nothing is left of the copies |
//! | `firewall` | the same where no node reaches another one |
//! | `other_ranks` | a run that cannot restart says so, and takes nothing away from one that can |
//! | `redundancy` | each scheme, against every loss that it promises to survive, and one more |
//! | `damage` | flipped bits are found, repaired where that can be, and never given to the application |
//! | `scavenged` | what dead jobs have left in cache is made whole in the prefix directory |
//! | `shared_path` | stores on a path that several nodes see |
//! | `shared_files` | files that several ranks write |
//! | `sparse` | files with holes stay as small as they are |
//! | `access_lists` | files have the rights that the list of the prefix directory gives |
//! | `imported` | files that were written without scr become a dataset |
//! | `scrubbed` | a scrub finds without a job what a restart would find |
//! | `plugin_host` | the plugin host against real libraries |
//! | `vendor` | a vendor's plugin does all that, and a bad one does no harm |
//! | `names` | two datasets never share a file, whether by its name or by a symbolic link, and no link leads outside |
//! | `folders` | ranks in different folders share a file only if they mean the same path |
//! | `replaced` | what one process reads in the prefix directory, no other one replaces meanwhile |
//! | `errors` | any error of the system at any operation |
//! | `unreadable` | what cannot be read for a moment is not taken for missing |
//! | `transports` | a store's line reaches its transport |
//! | `recorded` | what a job records for those who look at it from outside |
//! | `own_process` | an application that has closed its streams, or has a limit on the size of its files |
//! | `log` | what a job writes to its log, and what it says at `SCR_DEBUG=1` |
//! | `syslog` | what a job sends to the system's logger |

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "tests make and look at real files, and may fail"
)]

mod access_lists;
mod aggregated;
mod any_ranks;
mod auto_interval;
mod behind;
mod chosen;
mod costs;
mod crash;
mod damage;
mod descriptors;
mod effects;
mod errors;
mod firewall;
mod folders;
mod halting;
mod healed;
mod histories;
mod identity;
mod imported;
mod keeping;
mod large_pages;
mod lent;
mod log;
mod managed;
mod names;
mod need_checkpoint;
mod node_loss;
mod one_rank;
mod other_ranks;
mod own_mounts;
mod own_process;
mod panics;
mod parts;
mod passing;
mod plugin_host;
mod raced;
mod recorded;
mod recovery;
mod redundancy;
mod remains;
mod repairs;
mod replaced;
mod restarts;
mod retries;
mod scavenged;
mod scrubbed;
mod shared_files;
mod shared_path;
mod sparse;
mod syslog;
mod taken_over;
mod transports;
mod unreadable;
mod vendor;
mod world;
