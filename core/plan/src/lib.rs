//! How often to write checkpoints, and where to: models of a machine whose nodes fail. Pure functions, without any I/O.
//!
//! - `stage`: the arithmetic of stretches of time that end well or with a failure
//! - `model`: the published multi-level Markov model, and what differs in a job under scr
//! - `search`: the best plan for a machine
//! - `gaps`: times between failures, and what is known of their rate
//! - `simulate`: a job with its failures, event by event
//! - `auto`: the machine that a job has measured, and its plan; models that know one level
//! - `losses`: which losses of nodes a redundancy scheme survives

mod auto;
mod gaps;
mod losses;
mod model;
mod search;
mod simulate;
mod stage;

pub use auto::{daly, young, Auto, CacheCosts, Costs, Experience, Kind, Stated};
pub use gaps::{Belief, Gaps};
pub use losses::{partner_survival, survival};
pub use model::{Level, Machine, Plan, PlanError, Recovery, MOST_LEVELS};
pub use search::{best_interval, best_plan};
pub use simulate::{simulate, Outcome};
