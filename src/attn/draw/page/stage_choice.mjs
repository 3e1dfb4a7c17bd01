// Chooses which stage of the computation the matrix shows: scores, or the weights that come of them.

import {byId} from './dom.mjs';
import {hideTip} from './tip.mjs';
import {kStages} from './why.mjs';

/** @typedef {import('./why.mjs').StageName} StageName */

export class StageChoice {
  /**
   * @param {StageName[]} stages that the page can show
   * @param {import('./state.mjs').State} state
   * @param {() => void} draw what shows them
   */
  constructor(stages, state, draw) {
    this.stages = stages;
    this.state = state;
    this.draw = draw;
    byId('stages').hidden = stages.length === 0;
    for (const stage of stages) {
      const label = document.createElement('label'), radio = document.createElement('input');
      Object.assign(radio, {type: 'radio', name: 'stage', value: stage});
      radio.addEventListener('change', () => this.show(stage));
      label.append(radio, ` ${stage} ${kStages[stage][1].toUpperCase()}`);
      byId('stages').append(label);
    }
  }

  /** @param {StageName} stage */
  show(stage) {
    hideTip();
    this.state.stage = stage;
    this.draw();
  }
  /** Shows the one after the chosen one. */
  next() {
    const {stages} = this;
    if (stages.length > 0) this.show(stages[(stages.indexOf(this.state.stage) + 1) % stages.length]);
  }
}
