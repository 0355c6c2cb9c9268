package app

import (
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model/anthropic"
	"github.com/holdfast-run/holdfast/agent/model/openai"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/models"
)

// The models of sessions that name none, by provider. OpenAI-compatible servers
// have no model that all of them know.
const anthropicDefault = "claude-sonnet-5-5"

// autoModel is the default_model that takes the first provider there is.
const autoModel = "auto"

// chooseModels makes the choice of models out of what is configured.
func chooseModels(cfg config.Config, environ []string) (*models.Models, error) {
	prices, err := models.NewPrices(cfg.Models.Prices)
	if err != nil {
		return nil, err
	}
	found, err := providers(cfg, environ)
	if err != nil {
		return nil, err
	}
	a := models.Source{
		Name: "anthropic", Prefix: "claude-", Default: anthropicDefault,
		Missing: "set ANTHROPIC_API_KEY in the server's environment, or anthropic.key_file",
	}
	if p := found[0]; p.Configured {
		if a.Provider, err = anthropic.New(anthropic.Config{
			Key: p.key, URL: cfg.Models.AnthropicURL, Thinking: thinking(cfg.Models.Thinking), Silence: cfg.Models.Silence, Now: time.Now,
		}); err != nil {
			return nil, err
		}
	}
	o := models.Source{Name: "openai", Missing: "set OPENAI_API_KEY in the server's environment, openai.key_file, or openai.url"}
	if p := found[1]; p.Configured {
		if o.Provider, err = openai.New(openai.Config{Key: p.key, URL: cfg.Models.OpenAIURL, Silence: cfg.Models.Silence, Now: time.Now}); err != nil {
			return nil, err
		}
	}
	return models.New(scripted.New(), prices, a, o), nil
}

// defaultModel is the model of sessions that name none.
func defaultModel(cfg config.Config, m *models.Models) (string, error) {
	if cfg.DefaultModel == autoModel {
		return m.Default(), nil
	}
	return cfg.DefaultModel, m.Check(cfg.DefaultModel)
}

// Provider is what is known of a model provider's configuration, without its key.
type Provider struct {
	Name       string `json:"name"`
	Configured bool   `json:"configured"`
	URL        string `json:"url"`
	// KeyFrom is where the key comes from; empty when there is none.
	KeyFrom string `json:"key_from,omitempty"`

	key string
}

// providers finds the keys: anthropic, then openai. A key file that others can
// read is refused.
func providers(cfg config.Config, environ []string) ([]Provider, error) {
	m := cfg.Models
	out := []Provider{
		{Name: "anthropic", URL: m.AnthropicURL},
		{Name: "openai", URL: m.OpenAIURL},
	}
	files := []string{m.AnthropicKeyFile, m.OpenAIKeyFile}
	for i, variable := range []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY"} {
		p := &out[i]
		if v := variableOf(environ, variable); v != "" {
			p.key, p.KeyFrom = v, variable
		}
		if files[i] != "" {
			key, err := keyFile(p.Name+".key_file", files[i])
			if err != nil {
				return nil, err
			}
			p.key, p.KeyFrom = key, files[i]
		}
		p.Configured = p.key != ""
		if p.URL == "" {
			p.URL = []string{anthropic.DefaultURL, openai.DefaultURL}[i]
		}
	}
	// A compatible server of one's own may need no key.
	out[1].Configured = out[1].Configured || m.OpenAIURL != ""
	return out, nil
}

func variableOf(environ []string, name string) string {
	for _, kv := range environ {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func keyFile(setting, name string) (string, error) {
	raw, err := privateFile(setting, name)
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(raw))
	if key == "" || strings.ContainsAny(key, " \t\r\n\x00") {
		return "", refuseFile(holdfast.KindInvalid, setting, name, "does not hold a key")
	}
	return key, nil
}

// privateFile reads a small file that its owner alone can read.
func privateFile(setting, name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, refuseFile(holdfast.KindInvalid, setting, name, "cannot be opened")
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil || !info.Mode().IsRegular():
		return nil, refuseFile(holdfast.KindInvalid, setting, name, "is not a file")
	case info.Mode().Perm()&0o077 != 0:
		return nil, refuseFile(holdfast.KindDenied, setting, name, "can be read by others")
	}
	raw, err := io.ReadAll(io.LimitReader(f, 4097))
	if err != nil || len(raw) > 4096 {
		return nil, refuseFile(holdfast.KindInvalid, setting, name, "does not hold a key")
	}
	return raw, nil
}

func refuseFile(kind holdfast.Kind, setting, name, why string) error {
	return holdfast.Errorf(kind, "serve", "%s: %s %s", setting, holdfast.Quote(name), why).
		WithHint("put the key alone into a file and: chmod 600 %s", name)
}

func thinking(s string) anthropic.Thinking {
	n, _ := strconv.ParseInt(s, 10, 64)
	return anthropic.Thinking{Adaptive: s == "adaptive", Tokens: n}
}
