package app

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/anthropic"
	"github.com/holdfast-run/holdfast/agent/model/openai"
	"github.com/holdfast-run/holdfast/agent/model/remote"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/models"
)

// The default models by provider. Other servers that are compatible with OpenAI have no model in
// common: they are asked for their list.
const (
	anthropicDefault = "claude-sonnet-5-5"
	openaiDefault    = "gpt-5.5"
)

// autoModel is the value of default_model that means the first provider that is configured.
const autoModel = "auto"

// chooseModels returns the model choice and the providers of a configuration. secret reads keys
// from the credential store; nil without a store.
func chooseModels(cfg config.Config, environ []string, secret secretOf) (*models.Models, []Provider, error) {
	prices, err := models.NewPrices(cfg.Models.Prices)
	if err != nil {
		return nil, nil, err
	}
	found, err := providers(cfg, environ)
	if err != nil {
		return nil, nil, err
	}
	for i := range found {
		found[i].secret = secret
	}
	made := []*keyed{{key: found[0].lookup, make: func(key string) (model.Provider, error) {
		return anthropic.New(anthropic.Config{
			Key: key, URL: found[0].URL, Thinking: thinking(cfg.Models.Anthropic.Thinking), Silence: cfg.Models.Silence, Now: time.Now,
		})
	}}, {key: found[1].lookup, make: func(key string) (model.Provider, error) {
		return openai.New(openai.Config{Key: key, URL: found[1].URL, Silence: cfg.Models.Silence, Now: time.Now})
	}}}
	for i := range found {
		// An invalid provider configuration keeps the server from starting.
		if found[i].Configured {
			if _, err := made[i].provider(); err != nil {
				return nil, nil, err
			}
		}
	}
	compatible := ""
	if found[1].host() == hostOf(openai.DefaultURL) {
		compatible = openaiDefault
	}
	return models.New(scripted.New(), prices, models.Source{
		Name: "anthropic", Prefix: "claude-", Default: anthropicDefault, Provider: made[0], Ready: found[0].ready, Host: found[0].host(), List: made[0].Models,
		Missing: "set ANTHROPIC_API_KEY in the server's environment, or anthropic.key_file, or: holdfast secret set anthropic",
	}, models.Source{
		Name: "openai", Default: compatible, Provider: made[1], Ready: found[1].ready, Host: found[1].host(), List: made[1].Models,
		Missing: "set OPENAI_API_KEY in the server's environment, openai.key_file, or openai.url, or: holdfast secret set openai",
	}), found, nil
}

// secretOf returns a credential by name, or KindNotFound.
type secretOf func(name holdfast.SecretName) (string, error)

// lookup returns the provider's current key: from the file that the configuration names, else
// from the credential store, else from the environment. It returns "" if there is none.
func (p *Provider) lookup() (string, error) {
	if p.file || p.secret == nil {
		return p.key, nil
	}
	key, err := p.secret(holdfast.SecretName(p.Name))
	switch {
	case holdfast.IsKind(err, holdfast.KindNotFound):
		return p.key, nil
	case err != nil:
		return "", err
	case strings.ContainsAny(key, " \t\r\n\x00"):
		return "", holdfast.Errorf(holdfast.KindInvalid, "model", "the secret %s must hold one API key without white space", p.Name).
			WithHint("holdfast secret set %s", p.Name)
	}
	return key, nil
}

// ready reports whether the provider has a key or needs none. An error of the credential store
// counts as ready: the model call reports it.
func (p *Provider) ready() bool {
	if p.Configured {
		return true
	}
	key, err := p.lookup()
	return key != "" || err != nil
}

// keyed is a model provider whose key may change while the server runs.
type keyed struct {
	key  func() (string, error)
	make func(key string) (model.Provider, error)

	mu   sync.Mutex
	last string
	made model.Provider
}

func (k *keyed) provider() (model.Provider, error) {
	key, err := k.key()
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.made == nil || key != k.last {
		made, err := k.make(key)
		if err != nil {
			return nil, err
		}
		k.made, k.last = made, key
	}
	return k.made, nil
}

// Stream implements model.Provider.
func (k *keyed) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Chunk, error] {
	p, err := k.provider()
	if err != nil {
		return func(yield func(model.Chunk, error) bool) { yield(model.Chunk{}, err) }
	}
	return p.Stream(ctx, req)
}

// Models implements model.Lister.
func (k *keyed) Models(ctx context.Context) ([]string, error) {
	p, err := k.provider()
	if err != nil {
		return nil, err
	}
	l, ok := p.(model.Lister)
	if !ok {
		return nil, nil
	}
	return l.Models(ctx)
}

// ModelNames returns the names of the models with a known price.
func ModelNames() []string {
	prices, err := models.NewPrices(nil)
	if err != nil {
		return nil
	}
	var out []string
	for _, m := range prices.Models {
		out = append(out, m.Model)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// RealModel returns the default model of a server with this configuration but without a
// credential store. It fails with KindUnavailable if that is the scripted model.
func RealModel(ctx context.Context, cfg config.Config, environ []string) (string, error) {
	choice, _, err := chooseModels(cfg, environ, nil)
	if err != nil {
		return "", err
	}
	name, err := defaultModel(ctx, cfg, choice)
	if err == nil && name == holdfast.ScriptedModel {
		err = holdfast.Errorf(holdfast.KindUnavailable, "model", "no key of a model provider is in the environment").
			WithHint("set ANTHROPIC_API_KEY or OPENAI_API_KEY, or for a server of your own OPENAI_BASE_URL=http://127.0.0.1:11434/v1")
	}
	return name, err
}

// defaultModel returns the model of sessions that name none.
func defaultModel(ctx context.Context, cfg config.Config, m *models.Models) (string, error) {
	if cfg.DefaultModel == autoModel {
		return m.Default(ctx)
	}
	return cfg.DefaultModel, m.Check(cfg.DefaultModel)
}

// modelsOf returns the models of a configuration, as its providers list them now.
func modelsOf(ctx context.Context, cfg config.Config, m *models.Models) holdfast.Models {
	out := holdfast.Models{Providers: m.Providers(ctx)}
	var err error
	if out.Default, err = defaultModel(ctx, cfg, m); err != nil {
		out.Default, out.Error, out.Hint = "", err.Error(), holdfast.HintOf(err)
		var known *holdfast.Error
		if errors.As(err, &known) {
			out.Error = known.Msg
		}
	}
	out.Double = out.Default == holdfast.ScriptedModel
	return out
}

// Provider is the configuration of a model provider, without its key.
type Provider struct {
	Name       string `json:"name"`
	Configured bool   `json:"configured"`
	URL        string `json:"url"`
	// KeyFrom is the variable or the file with the key; empty if neither has one.
	KeyFrom string `json:"key_from,omitempty"`

	key string
	// file is true if the configuration names a key file, which has precedence.
	file   bool
	secret secretOf
}

// providers returns the providers anthropic and openai with the sources of their keys. It
// refuses a key file that others can read.
func providers(cfg config.Config, environ []string) ([]Provider, error) {
	m := cfg.Models
	out := []Provider{
		{Name: "anthropic", URL: m.Anthropic.URL},
		{Name: "openai", URL: m.OpenAI.URL},
	}
	files := []string{m.Anthropic.KeyFile, m.OpenAI.KeyFile}
	for i, variable := range []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY"} {
		p := &out[i]
		if v := variableOf(environ, variable); v != "" {
			p.key, p.KeyFrom = v, variable
		}
		if err := p.gateway(environ, files[i] != ""); err != nil {
			return nil, err
		}
		if files[i] != "" {
			key, err := keyFile(p.Name+".key_file", files[i])
			if err != nil {
				return nil, err
			}
			p.key, p.KeyFrom, p.file = key, files[i], true
		}
		p.Configured = p.key != ""
		if p.URL == "" {
			p.URL = []string{anthropic.DefaultURL, openai.DefaultURL}[i]
		}
	}
	// A compatible server of the user's own may need no key.
	out[1].Configured = out[1].Configured || out[1].URL != openai.DefaultURL
	return out, nil
}

// gateway uses the base URL of the environment, as the providers' own clients do, unless the
// configuration has one. If the environment has a key and a base URL, the key is sent to no other
// host than that of this URL.
func (p *Provider) gateway(environ []string, ownKey bool) error {
	variable := strings.ToUpper(p.Name) + "_BASE_URL"
	given := variableOf(environ, variable)
	if given == "" {
		return nil
	}
	if err := remote.CheckURL(variable, given); err != nil {
		return err
	}
	if p.URL == "" {
		p.URL = given
		return nil
	}
	if !ownKey && p.key != "" && hostOf(p.URL) != hostOf(given) {
		return holdfast.Errorf(holdfast.KindInvalid, "model", "the setting %s.url is %s and the variable %s is %s: it is not known which of the two the key in %s belongs to",
			p.Name, holdfast.Quote(p.URL), variable, holdfast.Quote(given), p.KeyFrom).
			WithHint("unset the setting or the variable, or put the key of %s.url into a file and set %s.key_file", p.Name, p.Name)
	}
	return nil
}

// host returns the host of the provider's URL.
func (p *Provider) host() string { return hostOf(p.URL) }

func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
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

// privateFile reads a file of at most 4096 bytes. It refuses a file that other users can read or write.
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
	return holdfast.Errorf(kind, "serve", "%s: the key file %s %s", setting, holdfast.Quote(name), why).
		WithHint("put the key alone into the file, then: chmod 600 %s", name)
}

func thinking(s string) anthropic.Thinking {
	n, _ := strconv.ParseInt(s, 10, 64)
	return anthropic.Thinking{Adaptive: s == "adaptive", Tokens: n}
}
