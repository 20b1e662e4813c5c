//! `drover job import`: Nomad's job files, volume files and jobs in JSON as manifests, for files that are kept as YAML
//! from now on.

use std::path::PathBuf;

use anyhow::Context as _;

use crate::state::job_files::{self, VariableArgs};
use crate::ui::stdio::{answer, complain};

/// How manifests are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum ManifestOutput {
    /// Documents behind `---`.
    #[default]
    Yaml,
    /// One object per line.
    Json,
}

/// Arguments of `drover job import`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 all is carried over, 1 error, or something in a file has no counterpart.")]
pub(crate) struct ImportArgs {
    /// Job files or volume files in HCL, or jobs in the JSON of `nomad job inspect`; `-` is standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    variables: VariableArgs,
    /// How the manifests are written.
    #[arg(short, long, value_enum, default_value_t)]
    output: ManifestOutput,
}

/// Writes the manifests of all files that are whole, and names all that is wrong with the others.
pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<u8> {
    let (mut text, mut n_broken) = (String::new(), 0);
    for file in &args.files {
        match job_files::manifests(file, &args.variables) {
            Ok(manifests) => {
                for manifest in manifests {
                    match args.output {
                        ManifestOutput::Yaml => {
                            text.push_str("---\n");
                            text.push_str(&serde_saphyr::to_string(&manifest).context("writing it as YAML")?);
                        }
                        ManifestOutput::Json => {
                            text.push_str(&serde_json::to_string(&manifest).context("writing it as JSON")?);
                            text.push('\n');
                        }
                    }
                }
            }
            Err(error) => {
                n_broken += 1;
                complain(&format!("{error:#}"));
            }
        }
    }
    answer(text.as_bytes())?;
    Ok(u8::from(n_broken > 0))
}
