// Package anthropic asks Claude models over the Messages API with the official
// SDK.
//
// The app builds one; it imports agent/model. Invariants: a request's system,
// tools and messages depend on the conversation alone, so that what a former
// request began with, the next begins with byte for byte and the provider's
// cache serves it, also after a restart; thinking goes back as it came; the key
// is in no error.
package anthropic
