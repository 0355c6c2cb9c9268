package models

import (
	"context"
	"iter"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
)

// Scripted is the model within the process.
const Scripted = "scripted"

// Source is a provider under its name.
type Source struct {
	// Name comes before the slash of a model's name.
	Name     string
	Provider model.Provider
	// Prefix is how those of its models begin that need no "NAME/"; empty is none.
	Prefix string
	// Default is its model for sessions that name none; empty is none.
	Default string
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
	prices   *Prices
}

// New makes a choice between a scripted model and sources, in order of preference.
func New(scripted model.Provider, prices *Prices, sources ...Source) *Models {
	return &Models{scripted: scripted, prices: prices, sources: sources}
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
	if name == Scripted {
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
	return append(out, Scripted)
}

// Default is the model of sessions that name none: that of the first source
// which has one.
func (m *Models) Default() string {
	for i := range m.sources {
		if s := &m.sources[i]; s.Default != "" && s.configured() {
			return s.Name + "/" + s.Default
		}
	}
	return Scripted
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
