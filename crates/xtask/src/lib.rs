//! Library of the project commands.
