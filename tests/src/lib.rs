//! Jobs on pretend nodes.
