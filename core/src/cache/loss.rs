//! The loss of a part of a dataset, from the least that can be lost to the most.

use serde::{Deserialize, Serialize};

/// The loss of a part. Its redundancy can be computed again as long as no member of its set lacks data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Lost {
    /// Its redundancy, and nothing else.
    Redundancy,
    /// The redundancy and the checksums that a local part has never had.
    Protection,
    /// Files. Its redundancy is of no use without them.
    Data,
}

/// The loss of a part, and its cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    pub lost: Lost,
    pub(crate) why: String,
}

impl Loss {
    pub(crate) fn of_data(why: impl Into<String>) -> Self {
        Self { lost: Lost::Data, why: why.into() }
    }

    pub(crate) fn of_redundancy(why: impl Into<String>) -> Self {
        Self { lost: Lost::Redundancy, why: why.into() }
    }

    /// That a part is local.
    pub(crate) fn of_protection() -> Self {
        Self { lost: Lost::Protection, why: "it was not protected yet".to_owned() }
    }
}
