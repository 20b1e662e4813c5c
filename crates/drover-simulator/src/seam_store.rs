//! A process's access to the API server, as its [`Store`].

use drover_store::memory::{Target, Unknown};
use futures::stream::BoxStream;
use serde_json::Value;

use super::feed;
use super::link::Client;
use super::seam::{Seam, refusal};
use super::verb::Verb;
use drover_store::{Change, Key, Object, Ownership, Part, Precondition, Selection, Store, StoreError};

impl Store for Seam {
    async fn get<K: Object>(&self, key: &Key) -> Result<Option<K>, StoreError> {
        let kind = Self::kind_of::<K>()?;
        let found = || self.world.store.get(kind, &self.place::<K>(key)).map(|stored| self.read(&stored)).transpose();
        self.call(kind, Verb::Read, false, found).await
    }

    async fn list<K: Object>(&self, wanted: &Selection) -> Result<Vec<K>, StoreError> {
        let kind = Self::kind_of::<K>()?;
        let selection = feed::selected(kind, wanted)?;
        let list = || {
            let all = self.world.store.list(kind, &selection);
            all.iter().filter(|stored| self.sees::<K>(&stored.key.name)).map(|stored| self.read(stored)).collect()
        };
        self.call(kind, Verb::Read, false, list).await
    }

    fn watch<K: Object>(&self, selection: Selection) -> BoxStream<'static, Change<K>> {
        feed::open(self.clone(), &selection)
    }

    async fn create<K: Object>(&self, object: &K) -> Result<K, StoreError> {
        let kind = Self::kind_of::<K>()?;
        let body = self.body(object)?;
        let create = || {
            let unknown = if self.client == Client::User { Unknown::Refuse } else { Unknown::Drop };
            let result = self.world.store.create(kind, body, unknown, self.caller(self.manager));
            self.answer(Verb::Create, result)
        };
        self.call(kind, Verb::Create, false, create).await
    }

    async fn apply_status<K: Object>(
        &self,
        key: &Key,
        manager: &'static str,
        condition: &Precondition,
        body: Value,
    ) -> Result<K, StoreError> {
        let kind = Self::kind_of::<K>()?;
        let apply = || {
            let target = Target { kind, key: &self.place::<K>(key), part: Part::Status, precondition: condition };
            self.answer(Verb::Patch, self.world.store.apply(target, body, Ownership::Force, self.caller(manager)))
        };
        self.call(kind, Verb::Patch, condition.resource_version.is_some(), apply).await
    }

    async fn merge<K: Object>(
        &self,
        key: &Key,
        part: Part,
        condition: &Precondition,
        body: Value,
    ) -> Result<K, StoreError> {
        let kind = Self::kind_of::<K>()?;
        let merge = || {
            let target = Target { kind, key: &self.place::<K>(key), part, precondition: condition };
            self.answer(Verb::Patch, self.world.store.merge(target, &body, self.caller(self.manager)))
        };
        self.call(kind, Verb::Patch, condition.resource_version.is_some(), merge).await
    }

    async fn replace<K: Object>(&self, object: &K) -> Result<K, StoreError> {
        let kind = Self::kind_of::<K>()?;
        let body = self.body(object)?;
        let replace = || self.answer(Verb::Update, self.world.store.replace(kind, body, self.caller(self.manager)));
        self.call(kind, Verb::Update, true, replace).await
    }

    async fn delete<K: Object>(&self, key: &Key, condition: &Precondition) -> Result<(), StoreError> {
        let kind = Self::kind_of::<K>()?;
        self.world.observe_attempt(self.client, kind, key);
        let delete = || {
            let place = self.place::<K>(key);
            let write = self.world.store.delete(kind, &place, condition, self.world.now()).map_err(refusal)?;
            self.world.observe(self.client, Verb::Delete, write.change);
            Ok(())
        };
        self.call(kind, Verb::Delete, condition.resource_version.is_some(), delete).await
    }
}
