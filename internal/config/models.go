package config

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Models are the settings of models and their providers. API keys are not settings:
// they come from the environment or from key files.
type Models struct {
	// AnthropicURL and OpenAIURL are the base URLs of the APIs; empty takes the provider's own.
	AnthropicURL, OpenAIURL string
	// AnthropicKeyFile and OpenAIKeyFile are the paths of files with an API key, which only their
	// owner may read.
	AnthropicKeyFile, OpenAIKeyFile string
	// Thinking is the extended thinking of Anthropic models: off, adaptive, or a number of tokens.
	Thinking string
	// MaxTokens is the most tokens of one answer of a model.
	MaxTokens int
	// Silence is the time without any bytes after which a model call is given up and tried again.
	Silence time.Duration
	// Park tells whether a turn waits as long as its provider asks, up to LongestPark, or fails.
	Park        Switch
	LongestPark time.Duration
	// Prices are the operator's own prices of models, in the form NAME=INPUT/OUTPUT.
	Prices []string
	// Budget and TurnBudget are the budgets of sessions and turns that set none themselves.
	Budget, TurnBudget holdfast.Budget
}

// Switch is a setting that is on or off.
type Switch string

// The values of a Switch.
const (
	On  Switch = "on"
	Off Switch = "off"
)

func defaultModels() Models {
	return Models{Thinking: "off", MaxTokens: 16384, Silence: 90 * time.Second, Park: On, LongestPark: 24 * time.Hour}
}

func modelKeys() []key {
	return append([]key{
		count("max_tokens", "Tokens an answer of a model may have; a budget sets them aside before each call.",
			func(c *Config) *int { return &c.Models.MaxTokens }, 16, 1_000_000),
		period("model_silence", "After how long without any data a model call is canceled and tried again.",
			func(c *Config) *time.Duration { return &c.Models.Silence }, time.Second, false),
		oneOf("park", "Whether a turn waits when its provider asks for more than a minute. With off, the turn fails with kind busy and names the time.",
			func(c *Config) *Switch { return &c.Models.Park }, On, Off),
		period("park_longest", "The longest wait of a parked turn; if a provider asks for a longer one, the turn fails.",
			func(c *Config) *time.Duration { return &c.Models.LongestPark }, time.Minute, false),
		list("prices", "Own prices of models in dollars per million tokens, as openai/my-model=0.5/1.5 (input/output) or with the cache's read and write after them. A name may end in *. They win over the built-in table; a model in neither has no known price.",
			"NAME=INPUT/OUTPUT", func(c *Config) *[]string { return &c.Models.Prices }, price),
		text("anthropic.url", "Base URL of the Anthropic API. Empty is ANTHROPIC_BASE_URL of the server's environment, else the provider's own. The key is ANTHROPIC_API_KEY there.",
			"URL", func(c *Config) *string { return &c.Models.AnthropicURL }, baseURL),
		text("anthropic.key_file", "File with the key, mode 0600; it wins over the environment.",
			"file", func(c *Config) *string { return &c.Models.AnthropicKeyFile }, absolutePath),
		text("anthropic.thinking", "Extended thinking: off, adaptive, or a number of tokens, which max_tokens holds with 1024 more for the answer.",
			"off, adaptive, number", func(c *Config) *string { return &c.Models.Thinking }, thinking),
		text("openai.url", "Base URL of an OpenAI-compatible API, as http://127.0.0.1:11434/v1. Empty is OPENAI_BASE_URL of the server's environment, else OpenAI's own. The key is OPENAI_API_KEY there; other servers may need none.",
			"URL", func(c *Config) *string { return &c.Models.OpenAIURL }, baseURL),
		text("openai.key_file", "File with the key, mode 0600; it wins over the environment.",
			"file", func(c *Config) *string { return &c.Models.OpenAIKeyFile }, absolutePath),
	}, append(budgetKeys("budget", "a session", func(c *Config) *holdfast.Budget { return &c.Models.Budget }),
		budgetKeys("turn_budget", "a turn", func(c *Config) *holdfast.Budget { return &c.Models.TurnBudget })...)...)
}

func budgetKeys(group, of string, at func(*Config) *holdfast.Budget) []key {
	turns := "Turns of " + of
	if group == "turn_budget" {
		turns = "Model calls of " + of
	}
	own := ", unless it has a budget of its own. 0 is no bound."
	return []key{
		count(group+".turns", turns+own, func(c *Config) *int64 { return &at(c).Turns }, 0, 1<<50),
		count(group+".tokens", "Tokens of "+of+own, func(c *Config) *int64 { return &at(c).Tokens }, 0, 1<<50),
		amount(group+".usd", "Dollars of "+of+own, func(c *Config) *float64 { return &at(c).USD }),
		amount(group+".seconds", "Seconds that "+of+" may run"+own, func(c *Config) *float64 { return &at(c).Seconds }),
	}
}

func amount(name, doc string, at func(*Config) *float64) key {
	return key{
		name: name, doc: doc, value: "number",
		get: func(c *Config) string { return strconv.FormatFloat(*at(c), 'g', -1, 64) },
		set: func(c *Config, s string) error {
			f, err := strconv.ParseFloat(s, 64)
			if err != nil || !(f >= 0 && f <= 1e8) {
				return fmt.Errorf("use a number from 0 to 100000000")
			}
			*at(c) = f
			return nil
		},
	}
}

// price checks the form of a price setting: NAME=INPUT/OUTPUT, or with two more numbers, each from 0
// to a million.
func price(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if n := strings.Count(value, "/"); !ok || name == "" || n != 1 && n != 3 {
		return fmt.Errorf("write dollars per million tokens as openai/my-model=0.5/1.5")
	}
	for part := range strings.SplitSeq(value, "/") {
		if f, err := strconv.ParseFloat(part, 64); err != nil || !(f >= 0 && f <= 1e6) {
			return fmt.Errorf("write dollars per million tokens as openai/my-model=0.5/1.5")
		}
	}
	return nil
}

func baseURL(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("use an address as https://models.example/v1, without user, query or fragment")
	}
	return nil
}

func thinking(s string) error {
	if s == "off" || s == "adaptive" {
		return nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err != nil || n < 1024 || n > 200_000 {
		return fmt.Errorf("use off, adaptive, or a number of tokens from 1024 to 200000")
	}
	return nil
}

// leastAnswer is the number of tokens that must remain for the answer itself beside thinking.
const leastAnswer = 1024

// thinkingFits refuses a number of thinking tokens that does not leave leastAnswer of MaxTokens:
// MaxTokens limits thinking and answer together, and budgets reserve that much.
func thinkingFits(m *Models) error {
	n, err := strconv.Atoi(m.Thinking)
	if err != nil || n+leastAnswer <= m.MaxTokens {
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, "config", "anthropic.thinking: \"%d\" does not fit into max_tokens, which is %d and bounds thinking and answer together",
		n, m.MaxTokens).WithHint("set max_tokens: %d", n+leastAnswer)
}
