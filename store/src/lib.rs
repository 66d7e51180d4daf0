//! A transactional, watchable map: it knows keys and revisions, not meaning.
