package models

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
)

// Source is a provider under its name.
type Source struct {
	// Name comes before the slash of a model's name.
	Name     string
	Provider model.Provider
	// Prefix is how those of its models begin that need no "NAME/"; empty is none.
	Prefix string
	// Default is its model for sessions that name none. Empty is the first that List names.
	Default string
	// Host is where it answers, for messages.
	Host string
	// List asks it for the names of its models; nil is a provider that has no list.
	List func(ctx context.Context) ([]string, error)
	// Ready says whether there is what Provider needs, its key; nil is always.
	Ready func() bool
	// Missing, when there is not, is what would configure it.
	Missing string
}

func (s *Source) configured() bool { return s.Provider != nil && (s.Ready == nil || s.Ready()) }

// Models chooses the provider of a request by its model. It implements
// model.Provider and model.Book; safe for concurrent use.
type Models struct {
	scripted model.Provider
	sources  []Source
	lists    []*list
	prices   *Prices
}

// New makes a choice between a scripted model and sources, in order of preference.
func New(scripted model.Provider, prices *Prices, sources ...Source) *Models {
	m := &Models{scripted: scripted, prices: prices, sources: sources}
	for range sources {
		m.lists = append(m.lists, newList())
	}
	return m
}

// find is the source of a model and the model's name with it.
func (m *Models) find(name string) (*Source, string) {
	provider, bare, named := strings.Cut(name, "/")
	for i := range m.sources {
		s := &m.sources[i]
		switch {
		case named && provider == s.Name:
			return s, bare
		case s.Prefix != "" && strings.HasPrefix(name, s.Prefix):
			return s, name
		}
	}
	return nil, ""
}

// Check refuses a model that nobody answers to.
func (m *Models) Check(name string) error {
	if name == holdfast.ScriptedModel {
		return nil
	}
	s, bare := m.find(name)
	if s == nil || bare == "" || len(name) > 200 || strings.ContainsAny(name, " \t\r\n\x00") {
		return holdfast.Errorf(holdfast.KindInvalid, "session", "%s is not a model of this server", holdfast.Quote(name)).
			WithHint("use %s", strings.Join(m.names(), ", "))
	}
	if !s.configured() {
		return holdfast.Errorf(holdfast.KindInvalid, "session", "%s needs the provider %s, which is not configured", holdfast.Quote(name), s.Name).
			WithHint("%s; configured: %s", s.Missing, strings.Join(m.names(), ", "))
	}
	return nil
}

// names are the models there are, as a hint shows them.
func (m *Models) names() []string {
	var out []string
	for i := range m.sources {
		if m.sources[i].configured() {
			out = append(out, m.sources[i].Name+"/MODEL")
		}
	}
	return append(out, holdfast.ScriptedModel)
}

// Default is the model of sessions that name none: that of the first source that is
// configured, else the scripted one. A source without a default of its own is asked for
// its list; unavailable if it does not answer in listTime or has no model.
func (m *Models) Default(ctx context.Context) (string, error) {
	for i := range m.sources {
		s := &m.sources[i]
		if !s.configured() || s.Default == "" && s.List == nil {
			continue
		}
		if s.Default != "" {
			return s.Name + "/" + s.Default, nil
		}
		names, err := m.lists[i].get(ctx, s.List)
		switch {
		case err != nil:
			return "", holdfast.Errorf(holdfast.KindUnavailable, "model", "%s at %s does not say which models it has: %s", s.Name, s.Host, reason(err)).
				WithHint("is it running? A session can name a model without the list: --model %s/NAME", s.Name)
		case len(names) == 0:
			return "", holdfast.Errorf(holdfast.KindUnavailable, "model", "%s at %s has no model", s.Name, s.Host).
				WithHint("load one there, with Ollama: ollama pull llama3.2")
		}
		return s.Name + "/" + names[0], nil
	}
	return holdfast.ScriptedModel, nil
}

// Providers tells of every source what it has, each asked for its list at the same time.
func (m *Models) Providers(ctx context.Context) []holdfast.ModelProvider {
	out := make([]holdfast.ModelProvider, len(m.sources))
	var wg sync.WaitGroup
	for i := range m.sources {
		s := &m.sources[i]
		out[i] = holdfast.ModelProvider{Name: s.Name, Host: s.Host, Configured: s.configured(), Models: []string{}}
		if !out[i].Configured {
			out[i].Hint = s.Missing
			continue
		}
		if s.List == nil {
			continue
		}
		wg.Go(func() {
			names, err := m.lists[i].get(ctx, s.List)
			if err != nil {
				out[i].Error = reason(err)
				return
			}
			for _, name := range names {
				out[i].Models = append(out[i].Models, s.Name+"/"+name)
			}
		})
	}
	wg.Wait()
	return out
}

// reason says in words why a list did not come.
func reason(err error) string {
	var f *model.Failure
	switch {
	case errors.As(err, &f):
		return f.Message
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", listTime)
	}
	return err.Error()
}

// Stream implements model.Provider.
func (m *Models) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Chunk, error] {
	s, bare := m.find(req.Model)
	if s == nil {
		// The scripted model answers under any name that was accepted once.
		if err := m.Check(req.Model); err != nil {
			return failing(err)
		}
		return m.scripted.Stream(ctx, req)
	}
	if !s.configured() {
		return failing(m.Check(req.Model))
	}
	req.Model = bare
	return s.Provider.Stream(ctx, req)
}

// failing is a stream that is an error: the configuration changed since the
// session was made.
func failing(err error) iter.Seq2[model.Chunk, error] {
	return func(yield func(model.Chunk, error) bool) { yield(model.Chunk{}, err) }
}

// Provider implements model.Book.
func (m *Models) Provider(name string) string {
	if s, _ := m.find(name); s != nil {
		return s.Name
	}
	return ""
}

// Price implements model.Book.
func (m *Models) Price(name string, u holdfast.Usage) holdfast.Usage {
	if s, bare := m.find(name); s != nil {
		name = s.Name + "/" + bare
	}
	return m.prices.Of(name, u)
}
