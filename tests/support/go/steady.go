package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Producers and consumers on franz-go that go on until they are told to stop. The commands, the messages and the
// answers are those of SteadyClients.java; members of groups know the classic protocol only, and `take` is told how
// many messages to wait for.
const (
	named       = 12
	keys        = 24
	transaction = 8
	pause       = 5 * time.Millisecond
)

func steady(servers string) {
	producers, members := map[string]*producer{}, map[string]*member{}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		answer, err := obey(servers, producers, members, strings.Fields(commands.Text()))
		if err != nil {
			answer = map[string]string{"error": commands.Text() + ": " + err.Error()}
		}
		told, _ := json.Marshal(answer)
		fmt.Println(string(told))
	}
}

func obey(servers string, producers map[string]*producer, members map[string]*member, words []string) (any, error) {
	name := words[1]
	switch words[0] {
	case "produce":
		made, err := newProducer(servers, name, words[2], words[3])
		producers[name] = made
		return nil, err
	case "acknowledged":
		return producers[name].total()
	case "finish":
		return producers[name].finish()
	case "join":
		made, err := newMember(servers, words[2], words[3])
		members[name] = made
		return nil, err
	case "read":
		return members[name].count(), nil
	case "leave":
		return members[name].finish(), nil
	case "take":
		return take(servers, name, words[2], words[3])
	}
	return nil, errors.New("no such command")
}

func client(servers string, options ...kgo.Opt) (*kgo.Client, error) {
	all := append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(300 * time.Millisecond),
	}, options...)
	return kgo.NewClient(all...)
}

type producer struct {
	name, topic          string
	keyed, transactional bool
	client               *kgo.Client
	stop, done           chan struct{}

	mu           sync.Mutex
	failure      error
	acknowledged map[string]int
	next         map[string]int
	sent         int
}

func newProducer(servers, name, topic, kind string) (*producer, error) {
	made := &producer{
		name: name, topic: topic,
		keyed: strings.HasPrefix(kind, "keyed"), transactional: strings.Contains(kind, "transactional"),
		stop: make(chan struct{}), done: make(chan struct{}),
		acknowledged: map[string]int{}, next: map[string]int{},
	}
	options := []kgo.Opt{kgo.ProducerLinger(20 * time.Millisecond), kgo.RecordDeliveryTimeout(patience)}
	if !made.keyed {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	if made.transactional {
		options = append(options, kgo.TransactionalID(topic+"-"+name), kgo.TransactionTimeout(10*time.Minute))
	}
	var err error
	if made.client, err = client(servers, options...); err == nil {
		go made.work()
	}
	return made, err
}

func (p *producer) work() {
	defer close(p.done)
	ctx := context.Background()
	for {
		select {
		case <-p.stop:
			p.fail(p.client.Flush(ctx))
			return
		case <-time.After(pause):
		}
		if !p.transactional {
			p.send(1)
		} else if err := p.transact(ctx); err != nil {
			p.fail(err)
			return
		}
	}
}

// Its messages count when the transaction is committed.
func (p *producer) transact(ctx context.Context) error {
	if err := p.client.BeginTransaction(); err != nil {
		return err
	}
	places := p.send(transaction)
	if err := p.client.Flush(ctx); err != nil {
		return err
	}
	if err := p.failed(); err != nil {
		return err
	}
	if err := p.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err
	}
	for _, place := range places {
		p.count(place)
	}
	return nil
}

func (p *producer) send(count int) []string {
	var places []string
	for range count {
		turn := p.sent
		p.sent++
		record := &kgo.Record{Topic: p.topic}
		place := strconv.Itoa(turn % named)
		if p.keyed {
			place = fmt.Sprintf("key-%d", turn%keys)
			record.Key = []byte(place)
		} else {
			record.Partition = int32(turn % named)
		}
		record.Value = fmt.Appendf(nil, "%s:%s:%d", p.name, place, p.next[place])
		p.next[place]++
		places = append(places, place)
		p.client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if p.fail(err) && !p.transactional {
				p.count(place)
			}
		})
	}
	return places
}

func (p *producer) count(place string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acknowledged[place]++
}

// Keeps the first error; whether there is none.
func (p *producer) fail(err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil {
		p.failure = err
	}
	return err == nil
}

func (p *producer) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure
}

func (p *producer) total() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := 0
	for _, count := range p.acknowledged {
		total += count
	}
	return total, p.failure
}

func (p *producer) finish() (map[string]int, error) {
	close(p.stop)
	<-p.done
	p.client.Close()
	return p.acknowledged, p.failed()
}

type member struct {
	client *kgo.Client
	done   chan struct{}

	mu     sync.Mutex
	values []string
}

func newMember(servers, topic, group string) (*member, error) {
	made := &member{done: make(chan struct{}), values: []string{}}
	var err error
	made.client, err = client(servers,
		kgo.ConsumerGroup(group),
		kgo.AutoCommitInterval(300*time.Millisecond),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	if err == nil {
		go made.work()
	}
	return made, err
}

func (m *member) work() {
	defer close(m.done)
	for {
		fetches := m.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		m.mu.Lock()
		fetches.EachRecord(func(record *kgo.Record) { m.values = append(m.values, string(record.Value)) })
		m.mu.Unlock()
	}
}

func (m *member) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.values)
}

func (m *member) finish() []string {
	m.client.Close()
	<-m.done
	return m.values
}

// Seeks by time, and reads that many messages: partition, offset and value.
func take(servers, topic, timestamp, wanted string) ([][]any, error) {
	milliseconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return nil, err
	}
	count, err := strconv.Atoi(wanted)
	if err != nil {
		return nil, err
	}
	reader, err := client(servers,
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(milliseconds)),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found := [][]any{}
	for len(found) < count {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d messages came: %w", len(found), count, err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			found = append(found, []any{record.Partition, record.Offset, string(record.Value)})
		})
	}
	return found, nil
}
