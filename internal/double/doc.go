// Package double imitates a provider's Messages API, and chat completions in the form of OpenAI-compatible servers,
// offline: it gives the answers of package scripted in their wire formats.
//
// The command line, app, bench and tests import it; it imports the scripted model and the vocabulary. Invariant: the
// double behaves as clients may expect of the real API, including refusals (of a changed signature, or of a tool use
// without its result), so a wrong client fails against the double, too.
package double
