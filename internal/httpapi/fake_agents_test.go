package httpapi

import (
	"context"
	"io"
	"sort"

	"github.com/holdfast-run/holdfast"
)

func (f *fakeEngine) Deploy(_ context.Context, name holdfast.AgentName, tar io.Reader) (holdfast.Deployed, error) {
	data, err := io.ReadAll(tar)
	if err != nil {
		return holdfast.Deployed{}, holdfast.Errorf(holdfast.KindInvalid, "agent.deploy", "the tar does not read: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a := holdfast.Agent{Name: name, Version: f.agents[name].Version + 1, VersionID: holdfast.VersionID(data), Runtime: "native"}
	f.agents[name] = a
	return holdfast.Deployed{Agent: a, Notices: []string{"a notice"}}, f.fail
}

func (f *fakeEngine) Explain(ctx context.Context, id holdfast.SessionID, req holdfast.ExplainPolicy) (holdfast.PolicyExplanation, error) {
	if _, err := f.Session(ctx, id); err != nil {
		return holdfast.PolicyExplanation{}, err
	}
	return holdfast.PolicyExplanation{Verdict: "allow", By: req.Tool, Mode: holdfast.ModePlan, Trace: []holdfast.PolicyStep{}}, f.fail
}

// fakeAgents is the registry side of the fake, whose method names differ.
type fakeAgents struct{ *fakeEngine }

func (f fakeAgents) Get(_ context.Context, name holdfast.AgentName) (holdfast.Agent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a, ok := f.agents[name]; ok {
		return a, nil
	}
	return holdfast.Agent{}, holdfast.Errorf(holdfast.KindNotFound, "agent", "no agent %s", holdfast.Quote(string(name)))
}

func (f fakeAgents) Update(ctx context.Context, name holdfast.AgentName, req holdfast.UpdateAgent) (holdfast.Agent, error) {
	a, err := f.Get(ctx, name)
	if err != nil {
		return a, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for to, p := range map[*string]*string{&a.Description: req.Description, &a.Model: req.Model, (*string)(&a.Mode): req.Mode} {
		if p != nil {
			*to = *p
		}
	}
	f.agents[name] = a
	return a, f.fail
}

func (f fakeAgents) List(context.Context) ([]holdfast.Agent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []holdfast.Agent
	for _, a := range f.agents {
		out = append(out, a)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, f.fail
}

func (f fakeAgents) Versions(ctx context.Context, name holdfast.AgentName) ([]holdfast.AgentVersion, error) {
	a, err := f.Get(ctx, name)
	return []holdfast.AgentVersion{{Agent: name, Number: a.Version, ID: a.VersionID}}, err
}

func (f fakeAgents) Delete(ctx context.Context, name holdfast.AgentName) error {
	_, err := f.Get(ctx, name)
	return err
}
