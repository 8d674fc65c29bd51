//! Codes as data: registering them with a cluster, and using those that come with its answers.

use std::sync::Arc;

use kintsu_code::{Code, Definition};
use kintsu_wire::message::{CodeInfo, CodeList, CodeName, Done, Nothing, RegisterCode, RegisteredCode};

use crate::{Client, ClientError};

impl Client {
    /// Registers a code, so that objects can be stored with it under its name; false if the same definition was
    /// registered before. The cluster proves it first.
    ///
    /// # Errors
    /// `Invalid` when its proof fails, with the reason; `Exists` when the name is taken by another definition.
    pub async fn register_code(&self, definition: &Definition) -> Result<bool, ClientError> {
        let request = RegisterCode { definition: definition.clone() };
        let reply: RegisteredCode = self
            .call(|mut c| {
                let request = request.clone();
                async move { c.operation.register_code(request).await }
            })
            .await?;
        Ok(reply.new)
    }

    /// The definition of a registered code.
    ///
    /// # Errors
    /// `NotFound`, or whatever keeps the coordinator from answering.
    pub async fn find_code(&self, name: &str) -> Result<Definition, ClientError> {
        let request = CodeName { name: name.to_owned() };
        self.call(|mut c| {
            let request = request.clone();
            async move { c.objects.find_code(request).await }
        })
        .await
    }

    /// All registered codes, in order of name.
    ///
    /// # Errors
    /// Whatever keeps the coordinator from answering.
    pub async fn codes(&self) -> Result<Vec<CodeInfo>, ClientError> {
        let list: CodeList = self.call(|mut c| async move { c.operation.codes(Nothing {}).await }).await?;
        Ok(list.codes)
    }

    /// Makes the cluster forget a registered code.
    ///
    /// # Errors
    /// `NotFound`; `Placement` while an object uses it.
    pub async fn remove_code(&self, name: &str) -> Result<(), ClientError> {
        let request = CodeName { name: name.to_owned() };
        let Done {} = self
            .call(|mut c| {
                let request = request.clone();
                async move { c.operation.remove_code(request).await }
            })
            .await?;
        Ok(())
    }
}

/// The code for a name from the coordinator or the user.
fn parse_code(name: &str) -> Result<Arc<dyn Code>, ClientError> {
    kintsu_code::parse(name).map_err(|e| ClientError::Invalid(e.to_string()))
}

/// The code that an answer of the coordinator names, from its definition if one came with it. The definition is
/// proved here too, as any input.
pub(crate) async fn received_code(
    name: &str,
    definition: Option<Definition>,
) -> Result<Arc<dyn Code>, ClientError> {
    let Some(definition) = definition else {
        // Constructing a code proves its distance, which may take seconds.
        let name = name.to_owned();
        let made = kintsu_wire::ambient::blocking(move || parse_code(&name)).await;
        return made
            .unwrap_or_else(|e| Err(ClientError::Invalid(format!("code: its proof was aborted: {e}"))));
    };
    if definition.name != name {
        return Err(ClientError::Corrupt(format!(
            "expected the definition of {name}, got that of {:?}",
            definition.name
        )));
    }
    let proof = kintsu_wire::ambient::blocking(move || definition.prove()).await;
    let proof = proof.map_err(|e| ClientError::Io(format!("a proof was aborted: {e}")))?;
    proof.map_err(|e| ClientError::Corrupt(format!("the definition of {name}: {e}")))
}
