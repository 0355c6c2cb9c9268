package runtime

import (
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Set holds the runtimes of a server, by name.
type Set map[string]Runtime

// NewSet makes a Set.
func NewSet(list []Runtime) Set {
	s := Set{}
	for _, r := range list {
		s[r.Name()] = r
	}
	return s
}

// Check returns KindInvalid for a name that is not a runtime of this server.
func (s Set) Check(name string) error {
	if s[name] != nil {
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, "session", "%s is not a runtime of this server", holdfast.Quote(name)).
		WithHint("use one of these runtimes: %s", strings.Join(slices.Sorted(maps.Keys(s)), ", "))
}

// Require refuses a runtime that is not in the set or cannot work with a trust level.
func (s Set) Require(name string, trust holdfast.Trust) error {
	if err := s.Check(name); err != nil {
		return err
	}
	if r, ok := s[name].(Requirer); ok {
		return r.Require(trust)
	}
	return nil
}

// List returns the runtimes, sorted by name. Problem says why untrusted sessions cannot use a runtime; it is empty if
// they can.
func (s Set) List() []holdfast.Runtime {
	var out []holdfast.Runtime
	for _, name := range slices.Sorted(maps.Keys(s)) {
		r := holdfast.Runtime{Name: name}
		if err := s.Require(name, holdfast.Untrusted); err != nil {
			r.Problem = strings.TrimSuffix(err.Error()+"; "+holdfast.HintOf(err), "; ")
		}
		out = append(out, r)
	}
	return out
}

// Transcript returns the path of the conversation file of a session's present agent, as its tools see it; empty if the
// runtime stores no such file or the session has no present agent of this runtime. The function states returns
// the session's agent states; Transcript calls it only for a runtime that stores conversation files.
func (s Set) Transcript(name string, at Place, states func() ([]holdfast.AgentState, error)) (string, error) {
	keeps, ok := s[name].(Transcriber)
	if !ok {
		return "", nil
	}
	list, err := states()
	for _, st := range list {
		if st.Runtime == name && st.Health == holdfast.HealthCurrent {
			return keeps.TranscriptPath(at, st.AgentID), nil
		}
	}
	return "", err
}
