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

// Source is a model provider with its name.
type Source struct {
	// Name is the provider's name, the part before the slash in a model's name.
	Name     string
	Provider model.Provider
	// Prefix is how the names of models begin that need no "NAME/" in front; empty if there are none.
	Prefix string
	// Default is the provider's model for sessions that name none; if empty, the first that List
	// returns.
	Default string
	// Host is the provider's address, shown in messages.
	Host string
	// List returns the names of the provider's models; nil if the provider has no list.
	List func(ctx context.Context) ([]string, error)
	// Ready reports whether the provider is configured, for example has its key; nil means always.
	Ready func() bool
	// Missing is the hint that says how to configure a provider that is not ready.
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

// New returns Models for a scripted model and providers, in order of preference.
func New(scripted model.Provider, prices *Prices, sources ...Source) *Models {
	m := &Models{scripted: scripted, prices: prices, sources: sources}
	for range sources {
		m.lists = append(m.lists, newList())
	}
	return m
}

// find returns the provider of a model, and the model's name without the provider's name; nil if the model
// belongs to no provider.
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

// Check returns an error of kind invalid for a name that is not well formed or has no configured provider.
func (m *Models) Check(name string) error {
	if name == holdfast.ScriptedModel {
		return nil
	}
	s, bare := m.find(name)
	if s == nil || bare == "" || len(name) > 200 || strings.ContainsAny(name, " \t\r\n\x00") {
		return holdfast.Errorf(holdfast.KindInvalid, "session", "%s is not the name of a model of this server", holdfast.Quote(name)).
			WithHint("use %s", strings.Join(m.names(), ", "))
	}
	if !s.configured() {
		return holdfast.Errorf(holdfast.KindInvalid, "session", "the model %s needs the provider %s, which is not configured", holdfast.Quote(name), s.Name).
			WithHint("%s; usable models: %s", s.Missing, strings.Join(m.names(), ", "))
	}
	return nil
}

// names returns the forms of model names that can be used, for a hint.
func (m *Models) names() []string {
	var out []string
	for i := range m.sources {
		if m.sources[i].configured() {
			out = append(out, m.sources[i].Name+"/MODEL")
		}
	}
	return append(out, holdfast.ScriptedModel)
}

// Default returns the model of sessions that name none: that of the first configured provider with a
// default or a list, else the scripted one. A provider without a default is asked for its list; if it
// does not answer within listTime or has no model, Default fails with unavailable.
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
			return "", holdfast.Errorf(holdfast.KindUnavailable, "model", "the model provider %s at %s did not list its models: %s", s.Name, s.Host, reason(err)).
				WithHint("check that the provider is running; a session can name a model without the list: --model %s/NAME", s.Name)
		case len(names) == 0:
			return "", holdfast.Errorf(holdfast.KindUnavailable, "model", "the model provider %s at %s has no model", s.Name, s.Host).
				WithHint("load a model into the provider, with Ollama for example: ollama pull llama3.2")
		}
		return s.Name + "/" + names[0], nil
	}
	return holdfast.ScriptedModel, nil
}

// Providers returns every provider with its models; all are asked for their lists concurrently.
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

// reason returns, as a text, why a provider's list could not be read.
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
		// Names without a provider that Check accepts belong to the scripted model.
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

// failing returns a stream that consists of an error. It is needed if the configuration changed
// after the session was created.
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
