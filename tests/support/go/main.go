// A member of a share group on franz-go. It takes messages, says what each is to become, and prints what it got.
//
//	SERVERS TOPIC GROUP COUNT accept    accepts them
//	                          reject    rejects them
//	                          release   releases what is delivered for the first time, and accepts the rest
//	                          renew     renews the locks once a second, four times, before it accepts
//
// It ends when COUNT messages are accepted or rejected, and the broker has confirmed that.
//
// `steady SERVERS` is another program: see steady.go. So is `kafka-go SERVERS TOPIC LAST_OFFSET`: see kafka_go.go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	patience = 60 * time.Second
	renewals = 4
)

func main() {
	if os.Args[1] == "steady" {
		steady(os.Args[2])
		return
	}
	if os.Args[1] == "kafka-go" {
		if err := readAll(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(servers, topic, group, wanted, verdict string) error {
	left, err := strconv.Atoi(wanted)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	refused := make(chan error, 1)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.ConsumeTopics(topic),
		kgo.ShareGroup(group),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			if err := results.Error(); err != nil {
				select {
				case refused <- err:
				default:
				}
			}
		}),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		records := fetches.Records()
		for _, record := range records {
			told, _ := json.Marshal(map[string]any{"value": string(record.Value), "delivery": record.DeliveryCount()})
			fmt.Println(string(told))
		}
		if verdict == "renew" {
			if err := renew(ctx, client, records); err != nil {
				return err
			}
		}
		for _, record := range records {
			switch {
			case verdict == "release" && record.DeliveryCount() == 1:
				record.Ack(kgo.AckRelease)
				continue
			case verdict == "reject":
				record.Ack(kgo.AckReject)
			default:
				record.Ack(kgo.AckAccept)
			}
			left--
		}
		if err := client.FlushAcks(ctx); err != nil {
			return err
		}
		select {
		case err := <-refused:
			return err
		default:
		}
	}
	return nil
}

func renew(ctx context.Context, client *kgo.Client, records []*kgo.Record) error {
	for range renewals {
		time.Sleep(time.Second)
		client.MarkAcks(kgo.AckRenew, records...)
		if err := client.FlushAcks(ctx); err != nil {
			return err
		}
	}
	return nil
}
