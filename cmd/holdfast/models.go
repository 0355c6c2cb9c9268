package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
)

type modelsCmd struct{}

// Help returns the text that the help shows below the one-line description of the command.
func (*modelsCmd) Help() string {
	return `Asks the server, which asks the providers that are configured. The first line is the model of sessions that name none. A name that is listed goes behind --model; a provider may take others as well.

Examples:
  holdfast models
  holdfast models --json`
}

// Run lists the models.
func (*modelsCmd) Run(e *env) error {
	m, err := ask(e, (*client.Client).Models)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(map[string]any{"models": m})
	}
	fmt.Fprintln(e.stdout, line(modelLine(m)))
	for _, p := range m.Providers {
		fmt.Fprintf(e.stdout, "%s: %s\n", line(p.Name), line(providerState(p)))
		for _, name := range p.Models {
			fmt.Fprintf(e.stdout, "  %s\n", line(name))
		}
	}
	return nil
}

// providerState describes in a few words where a model provider is and whether it lists models.
func providerState(p holdfast.ModelProvider) string {
	switch {
	case !p.Configured:
		return "not configured: " + p.Hint
	case p.Error != "":
		return "at " + p.Host + ", without a list: " + p.Error
	}
	return fmt.Sprintf("at %s, %s", p.Host, count(len(p.Models), "model", "models"))
}

// noModel is the hint how to get a real model instead of the test double.
const noModel = "set ANTHROPIC_API_KEY or OPENAI_API_KEY, or run: holdfast secret set anthropic"

// noteDouble warns on stderr if a session's model is the test double, whose answers could be
// taken for those of a real model.
func (e *env) noteDouble(model string) {
	if !e.json {
		_ = e.printer().Print(doubleLines(model)...) // writes to stderr; an error of that is ignored
	}
}

// doubleLines returns the warning of noteDouble as lines, or nil for another model.
func doubleLines(model string) []plain.Line {
	if model != holdfast.ScriptedModel {
		return nil
	}
	return []plain.Line{{Text: line(fmt.Sprintf("model: %s, a test double: %s", model, noModel))}}
}

// modelLine describes the default model of sessions, and what is wrong with it, in one line.
func modelLine(m holdfast.Models) string {
	switch {
	case m.Error != "":
		return strings.TrimSuffix("model: none: "+m.Error+"; "+m.Hint, "; ")
	case m.Double:
		return "model: " + m.Default + ", a test double: " + noModel
	}
	out := "model: " + m.Default
	name, _, _ := strings.Cut(m.Default, "/")
	i := slices.IndexFunc(m.Providers, func(p holdfast.ModelProvider) bool { return p.Name == name })
	if i < 0 {
		return out
	}
	p := m.Providers[i]
	all := count(len(p.Models), "model", "models")
	switch {
	case p.Error != "":
		return out + " at " + p.Host + ", which does not say which models it has: " + p.Error
	case len(p.Models) == 0:
		return out + " at " + p.Host
	case !slices.Contains(p.Models, m.Default):
		return out + ", which " + p.Host + " does not list (" + all + "): set default_model; holdfast models lists them"
	}
	return out + " at " + p.Host + " (" + all + ")"
}
