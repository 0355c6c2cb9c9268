// Package double imitates a provider's Messages API, and chat completions as
// OpenAI-compatible servers speak them, offline: it answers over their wire
// formats with what package scripted says.
//
// The command line and tests import it; it imports the scripted model and the
// vocabulary. Invariant: what a client may rely on of the real API holds here,
// refusals included (a signature that comes back changed, a tool use without its
// result), so a client that is wrong fails against the double as well.
package double
